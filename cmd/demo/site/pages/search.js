// The search, in the head of every page: all sections of all pages come once, when the field is first used.
'use strict'
{
  const head = document.querySelector('.top')
  head.insertAdjacentHTML('beforeend', `<form class="search" role="search">
<input type="search" aria-label="Search these pages" placeholder="Search" autocomplete="off" spellcheck="false" aria-controls="found">
<p class="status" role="status"></p>
</form>`)
  head.insertAdjacentHTML('afterend', '<ol id="found" class="found" hidden></ol>')
  const form = head.querySelector('.search'), field = form.querySelector('input'), status = form.querySelector('.status')
  const found = document.getElementById('found'), most = 12, around = 90
  const base = new URL('.', document.currentScript.src)

  let sections
  const load = () => sections ??= fetch(new URL('search.json', base)).then(answer => answer.json()).then(all => all.map(s => ({
    ...s, heading: s.heading ?? '', words: s.text.toLowerCase(), names: [s.heading, s.title].map(name => (name ?? '').toLowerCase()),
  })))

  // times is the number of times that a text has a word, a word's begin counting double.
  const times = (text, word) => {
    let n = 0
    for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + word.length)) n += /[\p{L}\p{N}]/u.test(text[at - 1] ?? ' ') ? 1 : 2
    return n
  }
  // score is 0 for a section that lacks one of the words.
  const score = (s, words) => {
    let sum = 0
    for (const word of words) {
      const [heading, title] = s.names.map(name => times(name, word))
      const n = 8 * heading + (s.heading ? 2 : 8) * title + Math.min(6, times(s.words, word))
      if (!n) return 0
      sum += n
    }
    return sum
  }

  // excerpt is the text around the first of the words, in which all of them stand out.
  const excerpt = (s, words) => {
    const first = Math.max(0, Math.min(...words.map(word => s.words.indexOf(word)).filter(at => at >= 0), s.text.length))
    const from = first == s.text.length || first < around ? 0 : s.text.indexOf(' ', first - around) + 1
    const p = document.createElement('p'), text = s.text.slice(from, from + 2 * around)
    if (from) p.append('… ')
    const pattern = new RegExp('(' + words.map(word => word.replace(/[\\^$.*+?()[\]{}|\/]/g, '\\$&')).join('|') + ')', 'giu')
    text.split(pattern).forEach((part, i) => {
      const mark = document.createElement('mark')
      mark.textContent = part
      p.append(i % 2 ? mark : part)
    })
    if (from + text.length < s.text.length) p.append(' …')
    return p
  }

  let asked = 0
  const search = async () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean), mine = ++asked
    let all = []
    try {
      if (words.length) all = await load()
    } catch {
      sections = undefined
      status.textContent = 'The index could not be loaded.'
      return
    }
    if (mine != asked) return // something else was typed meanwhile
    const hits = all.map(s => [score(s, words), s]).filter(([n]) => n).sort((a, b) => b[0] - a[0])
    found.replaceChildren(...hits.slice(0, most).map(([, s]) => {
      const item = document.createElement('li'), link = document.createElement('a')
      link.href = new URL(s.file, base)
      link.textContent = s.heading ? `${s.title}: ${s.heading}` : s.title
      item.append(link, excerpt(s, words))
      return item
    }))
    found.hidden = !hits.length
    status.textContent = !words.length ? '' : hits.length == 1 ? '1 section' : hits.length > most ? `${most} of ${hits.length} sections` : `${hits.length} sections`
  }

  field.addEventListener('focus', () => load().catch(() => { sections = undefined }))
  field.addEventListener('input', search)
  found.addEventListener('click', e => { if (e.target.closest('a')) found.hidden = true }) // it may lead to this page
  form.addEventListener('submit', e => { e.preventDefault(); found.querySelector('a')?.click() })
  addEventListener('keydown', e => { if (e.key == 'Escape' && field.value) { field.value = ''; search() } })
}
