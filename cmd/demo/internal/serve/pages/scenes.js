// The scenes: each draws one state of its facts as an SVG, and has one control that sets the state.
// A scene plays once when it comes into sight; where motion is unwanted, it shows its last state.
if (byID('promise')) (async () => {
  const calm = matchMedia('(prefers-reduced-motion: reduce)').matches
  const hour = 36e5, minute = 6e4, mix = (a, b, part) => a + (b - a) * Math.min(1, Math.max(0, part))

  // pen draws into an SVG of so many CSS pixels. Classes name the colours.
  const sizes = /^(rx|ry|width|height)$/ // none is below 0, in a window of any width
  const newPen = svg => {
    const add = (name, at, text) => {
      const e = document.createElementNS('http://www.w3.org/2000/svg', name)
      for (const [k, v] of Object.entries(at)) e.setAttribute(k, typeof v == 'number' ? +Math.max(sizes.test(k) ? 0 : -Infinity, v).toFixed(2) : v)
      if (text !== undefined) e.textContent = text
      svg.append(e)
      return e
    }
    svg.replaceChildren()
    const width = svg.clientWidth, height = svg.clientHeight
    return {
      width, height, narrow: width < 500,
      rect: (x, y, w, h, cls, more) => add('rect', { x, y, width: w, height: h, class: cls, ...more }),
      line: (x1, y1, x2, y2, cls = 'rule') => add('line', { x1, y1, x2, y2, class: cls }),
      path: (d, cls) => add('path', { d, class: cls }),
      bead: (x, y, rx, ry, cls) => add('ellipse', { cx: x, cy: y, rx, ry, class: cls }),
      // text stands left of x for 'end', and around x for 'middle'; size is in pixels.
      text: (x, y, text, cls = 'soft', size = 13, anchor = 'start') => add('text', { x, y, class: cls, 'font-size': size, 'text-anchor': anchor }, text),
    }
  }

  // column is a stack of beads above y: some filled, and hollow ones on top.
  const column = (p, x, y, rx, ry, full, hollow, cls, part = 1) => {
    for (let k = 0; k < full + hollow; k++)
      p.bead(x, y - (2 * k + 1) * ry - (k == full + hollow - 1 ? (1 - part) * 40 : 0), rx - 0.5, ry - 0.5, cls + (k < full ? '' : ' hollow'))
  }
  const clock = (ms, seconds) => utc(11 * hour + ms, seconds ? 1e3 : minute)

  // day is the time axis of the first three scenes, around eleven; lane is the place of their beads.
  const axis = (p, right = 0) => {
    const from = -90 * minute, to = 68 * minute, x = ms => (ms - from) / (to - from) * (p.width - right), floor = p.height - 24
    for (let at = -hour; at <= hour; at += hour / (p.narrow ? 1 : 2)) {
      p.line(x(at), floor, x(at), floor + 5)
      const end = x(at) > p.width - 20 // of the picture
      p.text(end ? p.width : x(at), floor + 20, clock(at), 'soft', 13, end ? 'end' : 'middle')
    }
    return { x, floor, at: px => from + px / (p.width - right) * (to - from) }
  }
  // The frame has room for the beads on its edges.
  const frame = (p, x, now, rx, floor, top = 8) => p.rect(x(now - hour) - rx - 2, top, x(now) - x(now - hour) + 2 * rx + 4, floor - top, 'frame')

  // scene binds a picture to its control. draw(pen, state) draws a state from 0 to last, whole or between
  // two, and returns what it says and, if the picture can be dragged, state(x).
  const scene = (id, last, { seconds, end = last, intro = 0, name = () => '' }, draw) => {
    const box = byID(id), svg = box.querySelector('svg'), input = box.querySelector('input'), button = box.querySelector('button')
    let state = calm ? end : -intro, going, drawn
    const show = to => {
      state = to
      drawn = draw(newPen(svg), to)
      svg.removeAttribute('aria-labelledby')
      svg.ariaLabel = drawn.says
      box.dataset.state = Math.round(to)
      if (input) {
        input.value = Math.round(to)
        input.ariaValueText = drawn.says
      }
      if (button) button.textContent = to >= last ? 'Begin again' : name(to)
    }
    const stop = () => { cancelAnimationFrame(going); going = undefined }
    const go = (to, time, then) => {
      stop()
      const from = state, begun = performance.now()
      const step = now => {
        const part = time ? (now - begun) / 1e3 / time : 1
        show(mix(from, to, part))
        going = part < 1 ? requestAnimationFrame(step) : undefined
        if (part >= 1) then?.()
      }
      step(begun)
    }
    const play = () => { if (calm) return show(end); show(-intro); go(Math.max(end, input ? last : end), seconds, () => end < last && input && go(last, 1.5, () => go(end, seconds / 3))) }
    if (input) {
      Object.assign(input, { min: 0, max: last, step: 1 })
      input.addEventListener('input', () => { stop(); show(+input.value) })
      input.addEventListener('keydown', e => { if (e.key == ' ') { e.preventDefault(); play() } })
      if (svg.classList.contains('drag')) for (const type of ['pointerdown', 'pointermove']) svg.addEventListener(type, e => {
        if (!e.buttons) return
        e.preventDefault() // no selection of the page's text
        stop()
        svg.setPointerCapture(e.pointerId)
        show(Math.min(last, Math.max(0, Math.round(drawn.state(e.clientX - svg.getBoundingClientRect().left)))))
      })
    }
    button?.addEventListener('click', () => {
      const at = Math.ceil(state)
      if (at >= last) { stop(); show(0) } else go(at + 1, calm ? 0 : at + 1 == last ? 1.2 : 0.25)
    })
    show(state)
    new ResizeObserver(() => show(state)).observe(svg)
    if (calm) return
    const seen = new IntersectionObserver(entries => {
      if (!entries.some(e => e.isIntersecting)) return
      seen.disconnect()
      if (state == -intro) play() // untouched
    }, { threshold: 0.6 })
    seen.observe(svg)
  }

  let f
  try { f = await facts() } catch { return lost() }
  const most = f.limit

  // 1. Presses within a minute, and one as soon as the answer says.
  const presses = f.promise, wait = presses.filter(p => !p.allowed)
  scene('promise', presses.length, { seconds: 4, end: most + 1, name: to => to < presses.length - 1 ? 'Sign up' : 'Wait, and sign up' }, (p, s) => {
    const n = Math.ceil(s), done = presses.slice(0, n), part = n - s ? 1 - (n - s) : 1, final = n == presses.length
    const { x, floor } = axis(p), newest = done.at(-1) ?? presses[0]
    const now = final ? mix(presses[n - 2].at, newest.at, part) : newest.at
    const early = done.filter(d => d.at < 0 && d.at > now - hour && d.allowed).length, refused = done.filter(d => !d.allowed).length
    const inside = early + (final && part == 1 ? 1 : 0), ry = (floor - 20) / 2 / (most + wait.length + 1), rx = ry * 1.25
    frame(p, x, now, rx, floor)
    p.line(0, floor, p.width, floor)
    const gone = final && part == 1 ? 1 : 0 // the first has left
    if (gone) p.bead(x(presses[0].at), floor - ry, rx - 0.5, ry - 0.5, 'off')
    column(p, x(presses[0].at), floor - 2 * ry * gone, rx, ry, Math.min(n, most) - gone, refused, 'ours', final ? 1 : part)
    if (gone) column(p, x(now), floor, rx, ry, 1, 0, 'ours')
    const left = x(now - hour) - rx + (gone ? p.narrow ? 34 : 44 : 10)
    p.text(left, 62, inside, 'ours strong', 48)
    p.text(left, 84, p.narrow ? `of ${most}` : `of ${most} in the last hour`, 'text')
    const retry = newest.allowed ? '' : 'in ' + utc(newest.retry, 1e3).slice(3)
    if (retry) {
      p.text(x(now) + rx + 10, floor - 2 * ry * (most + 1), 'denied', 'over strong', 16)
      p.text(x(now) + rx + 10, floor - 2 * ry * (most + 1) + 18, retry, 'over', 16)
    }
    if (gone) p.text(x(now) - rx - 8, floor - 8, 'admitted', 'ours', 14, 'end')
    return { says: `${inside} of ${most} in the last hour` + (retry && `; the next is denied: ${retry}`) }
  })

  // 2. Ten before eleven, and ten more at any time.
  const moves = f.clock.moves
  scene('clock', moves.length - 1, { seconds: 4 }, (p, s) => {
    const { x, floor, at } = axis(p), move = moves[Math.floor(s)], second = mix(moves[0].at, moves.at(-1).at, s / (moves.length - 1))
    const admitted = move.admitted, ry = (floor - 20) / 2 / (most + wait.length + 1), rx = ry * 1.25, over = move.fullest > most
    p.line(x(0), 6, x(0), floor, 'dashed')
    p.line(0, floor, p.width, floor)
    frame(p, x, second, rx, floor, 30)
    column(p, x(f.clock.first), floor, rx, ry, most, 0, 'r1')
    column(p, x(second), floor, rx, ry, admitted, most - admitted, 'r1')
    const left = x(second - hour) - rx + 10
    p.text(left, 75, move.fullest, (over ? 'over' : 'r1') + ' strong', 48)
    p.text(left, 94, p.narrow ? `of ${most}` : `of ${most} in one hour`, over ? 'over' : 'text')
    // What the fixed window itself counts.
    p.text(x(0) - 8, 20, p.narrow ? `${most}` : `from ${clock(-hour)}: ${most}`, 'r1 strong', 15, 'end')
    p.text(x(0) + 8, 20, p.narrow ? `${admitted}` : `from ${clock(0)}: ${admitted}`, 'r1 strong', 15)
    return { says: `Second ten at ${clock(second)}: the fixed window admits ${move.fullest} in one hour`, state: px => (at(px) - moves[0].at) / (moves.at(-1).at - moves[0].at) * (moves.length - 1) }
  })

  // 3. One attack on five limiters.
  const attack = f.attack, order = [1, 2, 3, 4, 0].map(i => ({ ...attack.racers[i], cls: 'r' + i }))
  const names = { 'log of every hit': 'log' }
  scene('repairs', attack.at.length - 1, { seconds: 7 }, (p, s) => {
    const right = p.narrow ? 52 : 90, { x, floor, at } = axis(p, right), i = Math.floor(s), now = mix(attack.at[i], attack.at[i + 1] ?? attack.at[i], s - i)
    const tall = (floor - 22) / order.length, ry = (tall - 18) / 2 / most, rx = p.narrow ? 4 : 8
    p.line(x(0), 22, x(0), 22 + tall, 'dashed')
    frame(p, x, now, rx, floor)
    order.forEach((r, row) => {
      const y = 22 + (row + 1) * tall, over = r.fullest[i] > most, sums = new Map()
      p.line(0, y, p.width - right, y)
      r.admitted.slice(0, i + 1).forEach((n, k) => {
        const group = k ? 1 + Math.floor((k - 1) / 5) : 0, sum = sums.get(group) ?? { n: 0, at: 0 }
        if (n) sums.set(group, { n: sum.n + n, at: sum.at + n * attack.at[k] })
      })
      for (const sum of sums.values()) column(p, x(sum.at / sum.n), y, rx, ry, sum.n, 0, r.cls)
      p.text(2, y - tall + 16, names[r.name] ?? r.name, r.cls + ' strong halo', 14) // the frame may cross it
      p.text(p.width - 4, y - 8, r.fullest[i], (over ? 'over' : r.cls) + ' strong', p.narrow ? 28 : 38, 'end')
    })
    p.text(p.width - 2, 14, p.narrow ? 'of ' + most : `of ${most} in one hour`, 'soft', 13, 'end')
    attack.at.slice(0, i + 1).forEach(at => p.line(x(at), 12, x(at), 18))
    const state = px => (at(px) - attack.at[0]) / minute
    return { says: `${clock(now)}: in one hour ` + order.map(r => `${names[r.name] ?? r.name} ${r.fullest[i]}`).join(', '), state }
  })

  // 4. Hits fall onto three rods; both memories in bytes.
  const stacks = f.rods, heaviest = stacks.at(-1).log, labels = ['hours', 'minutes of one hour', 'seconds of one minute']
  scene('beads', stacks.length - 1, { seconds: 9, intro: 1 }, (p, s) => {
    const i = Math.floor(s), stack = i < 0 ? { ...stacks[0], hits: 0, log: 0, abacus: 0, counts: stacks[0].counts.map(c => c.map(() => 0)) } : stacks[i]
    const next = stacks[i + 1], part = s - i, tall = (p.height - 96) / 3
    stack.counts.forEach((counts, row) => {
      const y = (row + 0.68) * tall, n = row == 1 ? 60 : counts.length, cell = p.width / n
      p.text(0, y - tall * 0.42, labels[row], 'text')
      p.line(0, y, p.width, y, 'wire')
      counts.forEach((count, k) => {
        const falling = next && part > 0.3 && i < 2 && next.counts[row][k] > count, x = (k + 0.5) * cell, r = Math.min(cell / 2 - 0.5, 18), tallest = Math.min(14, 1.4 * r)
        if (count) p.bead(x, y, r, tallest, 'ours')
        else p.bead(x, y, 1, 1, 'place')
        if (falling) p.bead(x, mix(row ? y - tall : 0, y, (part - 0.3) / 0.7), r, tallest, 'ours')
        if (count > 1 && cell > 20 + 5 * String(count).length) p.text(x, y + 5, commas(count), 'on strong', 13, 'middle')
      })
    })
    const bars = p.height - 84, wide = p.width - (p.narrow ? 160 : 230)
    for (const [row, name, bytes, cls] of [[0, 'log', stack.log, 'r4'], [1, 'abacus', stack.abacus, 'ours']]) {
      const y = bars + row * 42
      p.text(0, y + 24, name, cls + ' strong', 15)
      p.rect(64, y + 4, Math.max(2, bytes / heaviest * wide), 28, cls)
      p.text(72 + Math.max(2, bytes / heaviest * wide), y + 25, commas(bytes) + (p.narrow ? ' B' : ' bytes'), cls + ' strong', p.narrow ? 15 : 19)
    }
    p.text(p.width, 14, `${commas(stack.hits)} hit${stack.hits == 1 ? '' : 's'}`, 'text strong', 19, 'end')
    return { says: `${commas(stack.hits)} hits: a log takes ${commas(stack.log)} bytes, abacus ${commas(stack.abacus)}` }
  })

  // 5. The covers of the last day. The seconds collapse into rods first.
  const day = f.day, widths = [hour, minute, 1e3], span = 864e5
  scene('day', day.moments.length, { seconds: 7, end: day.middle, intro: 40 }, (p, s) => {
    const i = Math.max(0, Math.round(s)), first = i == day.moments.length, m = day.moments[first ? i - 1 : i], from = m.now - span
    const collapse = Math.min(1, Math.max(0, (s + 40) / 25)), ourRuns = first ? day.firstRuns : m.ourRuns, bookRuns = first ? [] : m.bookRuns
    const floor = (ms, w) => Math.floor(ms / w) * w, gap = 12, half = (p.width - gap) / 2, head = 86, tall = (p.height - head) / 3, lamp = Math.min(32, tall * 0.36)
    if (collapse < 1) {
      const cell = Math.sqrt(p.width * (p.height - head) / f.seconds), size = p.height - head
      p.text(0, 46, commas(f.seconds), 'text strong', 44)
      p.text(0, 66, 'seconds', 'text')
      const flat = mix(size, 4, collapse ** 3)
      for (let y = 0; y < flat; y += 2 * cell) p.line(0, head + y, p.width, head + y, 'dots')
      return { says: `${commas(f.seconds)} seconds`, state: () => 0 }
    }
    p.text(0, 46, first ? day.first : m.ours, 'ours strong', 44)
    p.text(0, 66, first ? 'usually enough' : 'abacus', 'ours')
    p.text(p.narrow ? 110 : 150, 46, first ? m.ours : m.book, (first ? 'ours' : 'r1') + ' strong', 30)
    p.text(p.narrow ? 110 : 150, 66, first ? 'in all' : 'textbook', first ? 'ours' : 'r1')
    p.text(p.width, 46, clock(m.now, true), 'text strong', p.narrow ? 18 : 24, 'end')
    p.text(p.width, 66, 'now', 'soft', 13, 'end')
    const rods = [ // [row, left, width, first instant, places, width of a place, label]
      [0, 0, p.width, floor(from, hour), 26, hour, first ? 'hours: a call reads these, and adds to the newest' : 'hours'],
      [1, 0, half, floor(from, hour), 60, minute, 'minutes, oldest hour'],
      [1, half + gap, half, floor(m.now, hour), 60, minute, 'newest hour'],
      [2, 0, half, floor(from, minute), 60, 1e3, 'seconds, oldest minute'],
      [2, half + gap, half, floor(m.now, minute), 60, 1e3, 'newest minute'],
    ]
    for (const [row, left, width, first, places, each, label] of rods) {
      const y = head + row * tall + 18, cell = width / places, space = cell > 6 ? 2 : 0.6
      p.text(left, y - 5, label, row ? 'soft' : 'ours')
      for (let k = 0; k < places; k++) {
        const at = first + k * each, lit = runs => runs.some(r => r.width == each && at >= r.start && at < r.start + r.n * each)
        p.rect(left + k * cell + space / 2, y, cell - space, lamp, lit(ourRuns) ? row ? 'ours half' : 'ours' : 'off', { rx: Math.min(5, cell / 4) })
        p.rect(left + k * cell + space / 2, y + lamp + 3, cell - space, 6, lit(bookRuns) ? 'r1' : 'off')
      }
      // The oldest and the newest place open into the next row.
      const open = row < 2 && (left ? [floor(m.now, each), 'newest'] : [floor(from, each), 'oldest'])
      const opens = (at, to) => p.path(`M${left + (at - first) / each * cell},${y + lamp + 10}L${to},${y + tall - 18}M${left + ((at - first) / each + 1) * cell},${y + lamp + 10}L${to + half},${y + tall - 18}`, 'opens')
      if (open) opens(open[0], left)
      if (row == 0) opens(floor(m.now, hour), half + gap)
    }
    const state = px => px / p.width * day.moments.length
    return { says: `${clock(m.now, true)}: ` + (first ? `a call reads ${day.first} numbers first, usually enough` : `abacus adds up ${m.ours} numbers, the textbook ${m.book}`), state }
  })

  // 6. A hit leaves with its bucket.
  const errors = f.error.widths, units = ['1 second', '1 minute', '10 minutes']
  const lasts = ms => ms < minute ? (ms / 1e3).toFixed(1) + ' s' : `${Math.floor(ms / minute)}:${String(Math.round(ms % minute / 1e3)).padStart(2, '0')} min`
  scene('error', errors.length - 1, { seconds: 5, end: 0, intro: 0.01 }, (p, s) => {
    const i = Math.round(Math.max(0, s)), e = errors[i], cell = p.width * (p.narrow ? 0.62 : 0.5), left = (p.width - cell) / 2, y = p.height * 0.2, tall = p.height * 0.24
    const part = (e.hit % e.width) / e.width, x = left + part * cell
    p.rect(0, y, left - 2, tall, 'off')
    p.rect(left + 2, y, cell - 4, tall, 'box', { rx: 6 })
    p.rect(left + cell + 2, y, left - 2, tall, 'off')
    p.rect(x, y, left + cell - 2 - x, tall, 'late')
    p.line(x, y - 26, x, y + tall + 8, 'edge')
    p.bead(x, y + tall / 2, 11, 11, 'ours')
    p.text(x - 8, y - 12, p.narrow ? 'due' : 'a hit is due to leave', 'text', 13, 'end')
    p.text(left + cell - 8, y - 12, `${lasts(e.late)} late`, 'over strong', p.narrow ? 16 : 20, 'end')
    p.text(left + 8, y + tall + 20, `one bucket: ${units[i]}`, 'soft')
    const low = p.height - 44
    const numbers = [[e.wrong, `of ${commas(f.error.hits)} wrongly denied`, 'over'], [e.most, p.narrow ? `bytes, busiest (log: ${commas(f.error.logMost)})` : `bytes for the busiest key; a log: ${commas(f.error.logMost)}`, 'ours']]
    numbers.forEach(([n, text, cls], k) => {
      p.text(k * p.width / 2, low, commas(n), cls + ' strong', p.narrow ? 36 : 48)
      p.text(k * p.width / 2, low + 24, text, 'text', p.narrow ? 11.5 : 14)
    })
    return { says: `Finest bucket ${units[i]}: ${commas(e.wrong)} of ${commas(f.error.hits)} wrongly denied, ${commas(e.most)} bytes for the busiest key` }
  })
})()
