// The watch: one stream of looks, as tables and lines; and one key, asked for by a form.
if (byID('watch') && byID('conditions')) (() => {
  const minutes5 = 3e5, clock = ms => utc(ms, 1e3) + ' UTC'
  const states = { holds: 'holds', broken: 'does not hold', unknown: 'not known' }
  let past = [], last, faults = {}, began

  const say = text => {
    const list = byID('said')
    list.append(element('li', { textContent: `${clock(Date.now())}: ${text}` }))
    while (list.children.length > 4) list.firstChild.remove()
  }
  const put = (e, text) => { if (e && e.textContent != text) e.textContent = text }

  // rows shows rows of cells, and touches only what is another: a cell is a text, or
  // a list of texts, or an element, which is made once for each name of a row.
  const rows = (table, all) => {
    const body = byID(table)?.tBodies[0]
    if (!body) return
    const shape = JSON.stringify(all.map(r => r.name))
    if (body.dataset.shape != shape) {
      body.dataset.shape = shape
      body.replaceChildren(...all.map(r => {
        const line = element('tr', { className: r.className || '' }, ...r.cells.map((c, i) => {
          const cell = element(i ? 'td' : 'th', { className: r.left?.includes(i) || !i ? 'name' : '' })
          if (!i) cell.scope = 'row'
          if (c instanceof Node) cell.append(c)
          return cell
        }))
        line.dataset.name = r.name
        return line
      }))
    }
    all.forEach((r, k) => r.cells.forEach((c, i) => {
      const cell = body.rows[k].cells[i]
      if (c instanceof Node) return
      if (!Array.isArray(c)) return put(cell, String(c))
      if (cell.dataset.lines == JSON.stringify(c)) return
      cell.dataset.lines = JSON.stringify(c)
      cell.replaceChildren(element('ul', {}, ...c.map(text => element('li', { textContent: text }))))
    }))
  }

  // A chart over five minutes. The series are made again if their names change.
  const lines = (id, format) => {
    const box = byID(id)
    if (!box) return () => {}
    let chart, shape
    const size = () => ({ width: box.clientWidth, height: box.clientHeight })
    new ResizeObserver(() => chart?.setSize(size())).observe(box)
    const axis = more => ({ stroke: () => ink('soft'), grid: { stroke: () => ink('rule') }, ticks: { show: false }, font: '11px system-ui', ...more })
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => chart?.redraw())
    return (names, values) => {
      const data = [past.map(m => m.at / 1000), ...values]
      if (shape != names.join()) {
        shape = names.join()
        chart?.destroy()
        chart = new uPlot({
          ...size(), legend: { show: false }, tzDate: s => uPlot.tzDate(new Date(s * 1000), 'UTC'), padding: [8, 8, 0, 0], cursor: { show: false },
          scales: { x: { range: () => { const now = (past.at(-1)?.at || Date.now()) / 1000; return [now - minutes5 / 1000, now] } }, y: { range: (u, low, high) => [0, Math.max(1, (high || 0) * 1.1)] } },
          axes: [axis({ size: 24, space: 70, values: (u, at) => at.map(s => utc(s * 1000, 1e3)) }), axis({ size: 44, values: (u, at) => at.map(format) })],
          series: [{}, ...names.map((_, i) => ({ stroke: () => ink('r' + i % 5), width: i ? 1.6 : 2.5, dash: [[], [6, 3], [2, 3]][Math.floor(i / 5) % 3], points: { show: false } }))],
        }, data, box)
      } else chart.setData(data)
    }
  }
  const latency = lines('latency', v => v.toFixed(v < 10 ? 1 : 0)), ratesChart = lines('rates', v => commas(Math.round(v * 10) / 10))

  const conditions = all => {
    const list = byID('conditions'), shape = JSON.stringify(all.map(c => c.name))
    if (list.dataset.shape != shape) {
      list.dataset.shape = shape
      list.replaceChildren(...all.map(c => {
        const line = element('li', {}, element('p', { className: 'what' }, element('span', { textContent: c.name }), element('span', { className: 'state' })), element('p', { className: 'why' }))
        line.dataset.name = c.name
        return line
      }))
    }
    all.forEach((c, i) => {
      const line = list.children[i]
      line.dataset.state = c.state
      put(line.querySelector('.state'), states[c.state])
      put(line.querySelector('.why'), c.why)
      told(c.name, c.state == 'broken' && states.broken, states[c.state])
    })
    const n = state => all.filter(c => c.state == state).length
    put(byID('verdict'), n('broken') ? `${n('broken')} of ${all.length} do not hold.` : n('unknown') ? `None is broken; ${n('unknown')} of ${all.length} are not known.` : `All ${all.length} hold.`)
  }

  // told says what goes and comes back, and nothing at the first look.
  const told = (name, fault, back) => {
    const was = faults[name]
    faults[name] = fault || ''
    if (was === undefined && !fault || was !== undefined && !was == !fault) return
    say(`${name}: ${fault || back}.`)
  }

  const mean = (name, ms) => {
    const of = past.filter(m => m.at > last.at - ms && m.rates).map(m => m.rates[name] || 0)
    return of.length ? rate(of.reduce((a, b) => a + b, 0) / of.length) : '–'
  }
  const rate = r => r === undefined ? '–' : r.toLocaleString('en', { maximumFractionDigits: r < 10 ? 1 : 0 })
  const seen = new Map()

  const service = s => {
    if (!s) return
    told('The service', s.fault, 'answers again')
    if (began !== undefined && s.begins > began) say('The totals of the service began anew: it was restarted, or another process answers.')
    began = s.begins
    const state = s.fault ? `No status since ${clock(s.since)}: ${s.fault}.`
      : !s.tallied ? 'The service does not count its decisions: tally.Status has no Tally.'
        : `Counted since ${clock(s.counted)}, ${new Date(s.counted).toISOString().slice(0, 10)}.${s.begins ? ` The totals began anew ${s.begins} times.` : ''}`
    put(byID('status-state'), state)
    byID('status-state').classList.toggle('fault', !!s.fault)
    if (s.fault) { rows('outcomes', [...seen].map(([name, total], i) => outcome(name, total, i))); return }
    for (const name of Object.keys(s.outcomes).sort()) seen.set(name, s.outcomes[name])
    rows('outcomes', [...seen].map(([name, total], i) => outcome(name, total, i)))
    put(byID('denied-since'), !s.tallied ? '' : s.denied.length ? `Since ${clock(s.denied_since)}, as the service counts.` : `Nobody was denied by a limit since ${clock(s.denied_since)}.`)
    rows('denied', s.denied.map(d => {
      const name = JSON.stringify([d.event, d.kind, d.feature])
      let look = element('span', { textContent: d.feature.startsWith(d.kind + ':') ? 'not to be typed' : 'a digest' })
      if (d.text) {
        look = element('button', { type: 'button', textContent: 'Look', ariaLabel: 'Look at ' + d.feature })
        look.addEventListener('click', () => { choose(d.event, d.kind, d.text); form.requestSubmit(); form.scrollIntoView({ block: 'start' }) })
      }
      return { name, left: [1, 3], cells: [d.feature, `${d.event} by ${d.kind}`, d.at_least < d.at_most ? `${commas(d.at_least)} to ${commas(d.at_most)}` : commas(d.at_most), look] }
    }))
    const stats = Object.entries({ 'limiter.Stats.': s.limiter, 'counter.Stats.': s.counter }).flatMap(([of, all]) => Object.entries(all).map(([name, value]) => [of + name, String(value)]))
    rows('stats', stats.map(([name, value]) => ({ name, cells: [name, value.startsWith('0001-01-01') ? 'never' : value] })))
  }
  const outcome = (name, total, i) => ({ name, className: 'r' + i % 5, cells: [name, last.rates ? rate(last.rates[name]) : '–', mean(name, 6e4), mean(name, minutes5), commas(total)] })

  const draw = () => {
    if (byID('latency')) latency(['trip'], [past.map((m, i) => i && m.at > past[i - 1].at + 5e3 ? null : m.trip)]) // nobody looked meanwhile: no line
    if (byID('rates') && seen.size) ratesChart([...seen.keys()], [...seen.keys()].map(name => past.map(m => m.rates ? m.rates[name] || 0 : null)))
  }

  const look = next => {
    last = next
    if (past.at(-1)?.at != next.at) past.push({ at: next.at, trip: next.trip, rates: next.rates })
    while (past[0].at < next.at - minutes5) past.shift()
    conditions(next.conditions)
    rows('servers', next.servers.map(s => {
      told(s.name, s.fault && 'does not answer: ' + s.fault, 'answers again')
      return { name: s.name, left: [1, 5, 6], className: s.fault ? 'down' : '', cells: [[s.name, s.version].filter(t => t), s.fault ? ['no, since ' + clock(s.since), s.fault] : ['yes, since ' + clock(s.since)], ...(s.trips || ['–', '–', '–']), s.clock || '–', s.facts.length ? s.facts : ['–']] }
    }))
    for (const line of byID('servers')?.tBodies[0].rows || []) line.cells[1].classList.toggle('over', next.servers.some(s => s.name == line.dataset.name && s.fault))
    service(next.service)
    draw()
  }

  // The form of the key.
  const form = byID('key'), event = byID('key-event'), kind = byID('key-kind'), value = byID('key-value'), per = byID('key-window')
  let list = [], kindsOf = {}
  const options = (select, names, texts = names) => {
    const was = select.value
    select.replaceChildren(...names.map((name, i) => element('option', { value: name, textContent: texts[i] })))
    if (names.includes(was)) select.value = was
  }
  const kinds = () => options(kind, kindsOf[event.value] || [])
  event.addEventListener('change', kinds)
  const choose = (e, k, v) => { event.value = e; kinds(); kind.value = k; value.value = v }

  const rules = given => {
    if (list.length) say(given.faults ? 'The file of the rules is bad: the rules from before stay.' : 'The rules have changed.')
    list = given.rules
    kindsOf = {}
    for (const r of list) {
      const all = kindsOf[r.event] ??= []
      for (const k of [r.kind, r.else]) if (k && !all.includes(k)) all.push(k)
    }
    options(event, Object.keys(kindsOf))
    kinds()
    rows('rules', list.map((r, i) => ({ name: `${i} ${r.event} ${r.kind}`, left: [1, 2, 3, 4], cells: [r.event, r.kind, [r.limits, ...r.notes || []], r.policy, r.ladder] })))
    put(byID('rules-more'), given.more ? `and ${commas(given.more)} more` : '')
    const box = byID('rules-faults')
    box.hidden = !given.faults
    box.replaceChildren(element('p', { textContent: 'The file has faults. The rules are those from before.' }), element('ul', {}, ...(given.faults || []).map(f => element('li', { textContent: f }))))
  }

  const rods = newRods(byID('rods'))
  let asked, timer, key
  const fault = text => { put(byID('key-fault'), text); value.ariaInvalid = !!text }
  const ask = async () => {
    clearTimeout(timer)
    const mine = asked
    if (!mine) return
    try {
      const answer = await fetch('/watch/key', { method: 'POST', body: mine, signal: AbortSignal.timeout(5000) })
      if (!answer.ok) throw new Error(answer.status)
      const found = await answer.json()
      if (mine != asked) return
      fault(found.fault || '')
      if (!found.fault) {
        show(found)
        byID('key-outcome').textContent ||= `${found.feature}: ${found.limits.map(l => `${commas(l.used)} of ${l.limit}`).join(', ')}.` // once for each question
      } else if (!found.again) { asked = undefined; byID('found').hidden = true }
    } catch {
      if (mine == asked) fault('The program does not answer.')
    }
    if (mine == asked) timer = setTimeout(ask, 1000)
  }
  const show = k => {
    byID('found').hidden = false
    put(byID('found-name'), k.feature)
    put(byID('found-note'), [k.banned && `Banned for ${k.banned}.`, k.override && `An override holds: ${k.override}.`, !k.limits.some(l => l.used) && 'Nothing is counted. With another prefix, secret or ladder, and on memcached skew or settle, nothing is found.'].filter(t => t).join(' '))
    rows('limits', k.limits.map(l => ({ name: l.limit, left: [3], cells: [l.limit, l.low < l.used ? `${commas(l.low)} to ${commas(l.used)}` : commas(l.used), commas(l.room), l.wait || '–'] })))
    if (per.dataset.of != k.windows.join()) {
      per.dataset.of = k.windows.join()
      options(per, ['', ...k.windows], ['the longest', ...k.windows])
    }
    put(byID('reads'), `${k.rods.ours} counts for ${k.window}, of which a store fetches some or none.`)
    key = k
    drawRods()
  }
  form.addEventListener('submit', e => {
    e.preventDefault()
    asked = new URLSearchParams(new FormData(form))
    byID('key-outcome').textContent = ''
    ask()
  })
  per.addEventListener('change', () => { if (asked) form.requestSubmit() })
  form.addEventListener('reset', () => { asked = undefined; clearTimeout(timer); fault(''); byID('found').hidden = true })
  const drawRods = () => { if (key && byID('rods').clientWidth) rods(key.rods, Math.max(key.max, 8), 0) }
  new ResizeObserver(drawRods).observe(byID('rods'))
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', drawRods)

  listen(() => '/watch/looks', { past: given => { past = given }, rules, look })
})()
