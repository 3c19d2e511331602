// The site: forms are sent by fetch, and the answer is shown as it was sent.
if (byID('site')) (() => {
  const fields = ['RateLimit-Policy', 'RateLimit', 'Retry-After', 'Content-Type', 'Location']
  const silent = () => { if (byID('gone').hidden) lost() }
  const say = text => { byID('outcome').textContent = text }
  const put = (e, text) => { if (e.textContent != text) e.textContent = text }

  // time writes so many seconds: "12 s", "59 min 3 s", "23 h 59 min".
  const time = s => s < 90 ? s + ' s' : s < 5400 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min`

  const begin = section => {
    const event = section.dataset.event, part = name => byID(event + '-' + name)
    const form = part('form'), field = form.querySelector('input'), panel = part('answer'), countdown = part('countdown')

    // The wait begins when the answer arrives: later than the server promised it,
    // so its end is no earlier than promised.
    let ends, timer
    const tick = () => {
      const left = Math.ceil(Math.max(0, ends - performance.now()) / 1000)
      countdown.dataset.left = left
      put(countdown, left ? `Admitted again in ${time(left)}` : 'Try now: you will be admitted')
      if (left) timer = setTimeout(tick, ends - performance.now() - (left - 1) * 1000 + 1)
      else say('Try now: you will be admitted.')
    }
    const wait = seconds => {
      clearTimeout(timer)
      countdown.hidden = !seconds
      delete countdown.dataset.left
      if (!seconds) return
      ends = performance.now() + seconds * 1000
      tick()
    }

    const show = async answer => {
      const text = await answer.text(), type = answer.headers.get('Content-Type') || '', problem = type.includes('json') && JSON.parse(text)
      const wrong = answer.status == 400 || answer.status == 413, after = +answer.headers.get('Retry-After')
      const message = problem ? problem.detail || problem.title : text.trim()
      wait(after)
      panel.dataset.status = answer.status
      put(part('status'), `${answer.status} ${answer.statusText}`)
      part('message').replaceChildren(...answer.status == 201 ? ['Your link: ', element('a', { id: 'shorten-link', href: message, textContent: message })] : [message])
      part('headers').replaceChildren(...fields.filter(name => answer.headers.has(name)).map(name => {
        const value = element('dd', { textContent: answer.headers.get(name) })
        value.dataset.name = name
        return element('div', {}, element('dt', { textContent: name }), value)
      }))
      part('body').textContent = problem ? JSON.stringify(problem, null, 2) : text.trim()
      part('of').replaceChildren(' to “', value(), '”')
      for (const name of ['body', 'past']) part(name).hidden = false
      field.setAttribute('aria-invalid', wrong)
      part('wrong').textContent = wrong ? message : ''
      part('wrong').hidden = !wrong
      const again = after ? ` Admitted again in ${time(after)}.` : ''
      say(wrong ? '' : answer.ok ? `Admitted: ${answer.status}. ${message}` : `Denied: ${answer.status}.${again}`)
      const line = element('li', {}, `${utc(Date.now(), 1e3)} UTC ${answer.status} `, value(), after ? `, to wait ${time(after)}` : '')
      line.dataset.status = answer.status
      part('history').prepend(line)
      while (part('history').children.length > 5) part('history').lastChild.remove()
    }

    // One answer is awaited at a time: a second press meanwhile is not sent. The
    // button stays enabled, for a disabled one would lose the focus.
    let sent = field.value
    const value = () => element('bdi', { textContent: sent }) // may be written from right to left
    form.noValidate = true // the answer stands beside the field
    form.addEventListener('submit', async e => {
      e.preventDefault()
      if (section.ariaBusy == 'true') return
      section.ariaBusy = 'true'
      sent = field.value
      try {
        await show(await fetch(form.action, { method: 'POST', body: new URLSearchParams(new FormData(form)) }))
        found()
      } catch {
        silent()
      }
      section.ariaBusy = 'false'
      look()
    })

    // The keys in the store: looked at after each answer, and once a second while
    // something is counted.
    const keys = new Map()
    let next
    const look = async () => {
      clearTimeout(next)
      let counted = true
      if (!document.hidden) {
        try {
          const answer = await fetch('/site/key?' + new URLSearchParams({ event, [field.name]: sent }))
          if (!answer.ok) throw answer.status
          const stored = await answer.json()
          draw(stored)
          found()
          // The promise was kept, and another page of this visitor took the place.
          const after = Math.ceil(Math.max(...stored.flatMap(k => k.limits.map(l => l.retryAfter))) / 1000)
          if (countdown.dataset.left == 0 && after) {
            say(`Another request was first. Admitted again in ${time(after)}.`)
            wait(after)
          }
          counted = stored.some(k => k.limits.some(l => l.used))
        } catch {
          silent()
        }
      }
      clearTimeout(next)
      if (counted) next = setTimeout(look, 1000)
    }
    const draw = stored => {
      for (const [name, key] of keys) if (!stored.some(k => k.feature == name)) {
        key.box.remove()
        keys.delete(name)
      }
      for (const k of stored) {
        if (!keys.has(k.feature)) keys.set(k.feature, newKey(k))
        keys.get(k.feature).update(k)
      }
    }
    const newKey = k => {
      const rows = k.limits.map(l => {
        const cells = ['used', 'remaining', 'again'].map(of => { const cell = element('td'); cell.dataset.of = of; return cell })
        const row = element('tr', {}, element('th', { scope: 'row', textContent: l.limit }), ...cells)
        row.dataset.limit = l.limit
        return { row, cells }
      })
      const head = ['Limit', 'used', 'left', 'room again in'].map(text => element('th', { scope: 'col', textContent: text }))
      const rods = element('div', { className: 'rods' })
      const box = element('div', { className: 'stored' },
        element('h3', {}, `In the store: event `, element('code', { textContent: k.event }), ', feature ', element('code', { textContent: k.feature })),
        element('table', { ariaLabel: 'Limits of ' + k.feature }, element('thead', {}, element('tr', {}, ...head)), element('tbody', {}, ...rows.map(r => r.row))), rods)
      box.dataset.feature = k.feature
      part('keys').append(box)
      const drawRods = newRods(rods)
      return {
        box,
        update: k => {
          k.limits.forEach((l, i) => {
            const numbers = [l.used, l.room, l.retryAfter ? l.retryAfter < 9e4 ? (l.retryAfter / 1000).toFixed(1) + ' s' : time(Math.ceil(l.retryAfter / 1000)) : 'now']
            numbers.forEach((text, n) => put(rows[i].cells[n], String(text)))
          })
          drawRods(k.rods, k.max)
        },
      }
    }
    look()
  }
  document.querySelectorAll('.try').forEach(begin)
  document.querySelector('.site-key').hidden = false

  let another = 0
  byID('signup-other').hidden = false
  byID('signup-other').addEventListener('click', () => { byID('signup-email').value = `visitor-${++another}@example.org` })
})()
