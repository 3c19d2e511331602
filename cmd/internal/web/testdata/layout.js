// layout finds what is wrong with a page in a window, whatever the page shows, and
// returns the measures that it uses.
const layout = (view, scheme, wrong) => {
  const doc = view.document, root = doc.documentElement
  const box = e => e.getBoundingClientRect()
  const name = e => (e.closest('.one')?.innerText ?? '') + ' ' + e.tagName + ' ' + e.textContent.trim().slice(0, 30)
  const overlap = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 0.5 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 0.5
  const pairs = (elements, what) => {
    const boxes = elements.map(box)
    for (let i = 0; i < boxes.length; i++)
      for (let j = 0; j < i; j++)
        if (overlap(boxes[i], boxes[j])) wrong.push(what + ': ' + name(elements[j]) + ' and ' + name(elements[i]))
  }

  if (view.matchMedia('(prefers-color-scheme: dark)').matches != (scheme == 'dark')) wrong.push('the scheme is the other one')
  if (root.scrollWidth > root.clientWidth) wrong.push('the page scrolls sideways: ' + root.scrollWidth)
  for (const e of doc.body.querySelectorAll('*'))
    if (!e.closest('.scroll') && !e.closest('.uplot') && (box(e).right > root.clientWidth + 0.5 || box(e).left < -0.5)) wrong.push('beyond the window: ' + name(e))

  for (const table of doc.querySelectorAll('.scroll table')) {
    const cells = [...table.querySelectorAll('th,td')]
    pairs(cells, 'cells overlap')
    for (const c of cells) if (c.scrollWidth > c.clientWidth + 1) wrong.push('text leaves its cell: ' + name(c))
  }

  const rgb = s => s.match(/[\d.]+/g).map(Number)
  const light = s => {
    const [r, g, b] = rgb(s).map(v => (v /= 255, v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    return 0.2126 * r + 0.7152 * g + 0.0722 * b
  }
  const contrast = (a, b) => {
    const [low, high] = [light(a), light(b)].sort((x, y) => x - y)
    return (high + 0.05) / (low + 0.05)
  }
  const below = e => {
    for (; e; e = e.parentElement) {
      const c = view.getComputedStyle(e).backgroundColor
      if (rgb(c)[3] !== 0) return c
    }
    return 'rgb(255,255,255)'
  }
  if (light(below(doc.body)) > 0.5 == (scheme == 'dark')) wrong.push('the ground is ' + below(doc.body))
  const seen = new Set()
  for (const e of doc.body.querySelectorAll('*:not(script)')) {
    if (![...e.childNodes].some(n => n.nodeType == 3 && n.textContent.trim())) continue
    const { color } = view.getComputedStyle(e), c = contrast(color, below(e)), key = color + below(e)
    if (c < 4.5 && !seen.has(key)) wrong.push('contrast of ' + c.toFixed(2) + ': ' + name(e))
    seen.add(key)
  }

  // The colours that charts are drawn in.
  const ink = name => {
    const probe = doc.body.appendChild(doc.createElement('i'))
    probe.style.color = 'var(--' + name + ')'
    const { color } = view.getComputedStyle(probe)
    probe.remove()
    return color
  }
  for (const under of ['ground', 'panel']) {
    const stands = (name, least) => {
      const c = contrast(ink(name), ink(under))
      if (!(c >= least)) wrong.push(name + ' on ' + under + ' has the contrast ' + c + ', want ' + least)
    }
    for (const name of ['text', 'soft', 'line', 'ours', 'over', 'good']) stands(name, 4.5)
    stands('reference', 3)
  }
  return { box, name, rgb, contrast, ink, pairs }
}
