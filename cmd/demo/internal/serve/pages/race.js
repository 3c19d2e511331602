// The sandbox: one stream of frames, drawn as lanes and as rods. The stream begins when the sandbox is in sight or used;
// a module is loaded when a control is used.
if (byID('race')) (() => {
  const limit = byID('limit'), speed = byID('speed'), play = byID('play'), pattern = byID('pattern')
  const calm = matchMedia('(prefers-reduced-motion: reduce)').matches
  let frame, samples = [], playing = !calm && !newRace.loads, spoken = 0, opening = false, burstAt, fresh

  const unit = () => limit.selectedOptions[0].text.split(' ').at(-1)
  let race
  const act = (todo, value) => { if (!race) begin(); race.act(todo, value) }
  const pace = () => +(10 ** speed.value).toPrecision(2)

  const showPace = () => {
    const per = { minute: 60, hour: 3600, day: 86400 }[unit()] / pace()
    const passes = per >= 90 ? Math.round(per / 60) + ' min' : (per < 10 ? per.toFixed(per < 1 ? 2 : 1) : Math.round(per)) + ' s'
    speed.ariaValueText = byID('pace').textContent = `× ${commas(pace())}: ${unit() == 'hour' ? 'an' : 'a'} ${unit()} in ${passes}`
  }

  const say = text => { byID('said').textContent = text }

  // Lanes: all attempts, and the admitted of the fixed window and of abacus.
  const lanes = () => {
    const { ctx, width, height } = canvas(byID('lanes')), f = frame, floor = height - 20, lane = floor / 3, narrow = width < 500, strip = narrow ? 34 : 20
    const from = f.now - 2.25 * f.per, to = f.now + 0.25 * f.per, x = ms => (ms - from) / (to - from) * width
    // Columns end at the boundaries: no bead of one window stands in another.
    const column = f.per / Math.max(1, Math.floor(f.per / Math.max(f.grid, 12 / width * (to - from)))), bead = 0.4 * column / (to - from) * width, each = Math.ceil(f.max / 10), tall = (lane - strip - 4) / 10
    const rows = [
      { name: 'attempts', colour: 'soft', of: s => s.tried },
      { name: 'fixed window', colour: 'r1', of: s => s.admitted[1], racer: 1 },
      { name: 'abacus', colour: 'r0', of: s => s.admitted[0], racer: 0 },
    ]
    rows.forEach((row, i) => {
      const bottom = (i + 1) * lane, sums = new Map()
      ctx.fillStyle = ink('rule')
      ctx.fillRect(0, bottom - 1, width, 1)
      for (const s of [...samples, f.present]) {
        const at = Math.floor((s.at - f.grid / 2) / column)
        if (!s.tried || s.at <= from) continue
        const sum = sums.get(at) ?? { admitted: 0, tried: 0 }
        sum.admitted += row.of(s)
        sum.tried += s.tried
        sums.set(at, sum)
      }
      ctx.fillStyle = ctx.strokeStyle = ink(row.colour)
      for (const [at, sum] of sums) {
        const middle = x((at + 0.5) * column), inside = middle > x(f.now - f.per), filled = Math.ceil(sum.admitted / each)
        ctx.globalAlpha = inside ? 1 : 0.3
        for (let k = 0; k < Math.min(10, filled + Math.ceil((sum.tried - sum.admitted) / each)); k++) {
          ctx.beginPath()
          ctx.ellipse(middle, bottom - 2 - (k + 0.5) * tall, bead, tall / 2 - 0.5, 0, 0, 7)
          if (k < filled) ctx.fill()
          else ctx.stroke()
        }
      }
      ctx.globalAlpha = 1
    })
    // The boundaries of the fixed window.
    ctx.strokeStyle = ink('reference')
    ctx.fillStyle = ink('soft')
    ctx.textAlign = 'center'
    ctx.setLineDash([4, 4])
    for (let at = Math.ceil(from / f.per) * f.per; at < to; at += f.per) {
      ctx.beginPath()
      for (let i = 0; i < 2; i++) { // below the names; abacus knows no boundary
        ctx.moveTo(x(at), i * lane + strip)
        ctx.lineTo(x(at), (i + 1) * lane)
      }
      ctx.stroke()
      if (x(at) > 20 && x(at) < width - 20) ctx.fillText(f.per < 864e5 ? utc(at, 6e4) : new Date(at).toUTCString().slice(0, 3) + ' 00:00', x(at), height - 5)
    }
    ctx.setLineDash([])
    // The frame, and the count in the frame.
    const left = x(f.now - f.per), right = x(f.now), last = x(Math.floor(f.now / f.per) * f.per)
    const before = right - last < 130 // the frame's edge would cross the words
    ctx.textAlign = before ? 'right' : 'left'
    if (last > (before ? 420 : 310)) ['begins again at 0', 'does not begin again'].forEach((text, i) => ctx.fillText(text, last + (before ? -6 : 6), (i + 1) * lane + 15))
    ctx.textAlign = 'left'
    ctx.strokeStyle = ink('frame')
    ctx.lineWidth = 2
    ctx.strokeRect(left, 1, right - left, floor - 2)
    ctx.lineWidth = 1
    rows.forEach((row, i) => {
      const racer = f.racers[row.racer], over = racer && racer.in > f.max
      const times = over && `${(racer.in / f.max).toFixed(2)} × the limit`, count = racer ? `${racer.in} in the window` : ''
      const lines = narrow ? [row.name, over ? `${racer.in}: ${times}` : count] : [row.name + (count && ': ' + count) + (over ? ', ' + times : '')]
      ctx.font = (over ? '600 ' : '') + '12px system-ui, sans-serif'
      ctx.lineWidth = 4
      ctx.strokeStyle = ink('ground')
      ctx.fillStyle = ink(over ? 'over' : 'text')
      lines.forEach((text, k) => {
        ctx.strokeText(text, 6, i * lane + 15 + 14 * k)
        ctx.fillText(text, 6, i * lane + 15 + 14 * k)
      })
    })
  }

  // The table is made once, and then only its numbers change.
  const means = {
    'abacus': 'counts of seconds, minutes and hours',
    'fixed window': 'one count, from 0 at each boundary',
    'two counters': 'this window, and a share of the one before',
    'token bucket': 'tokens that come back evenly',
    'log of every hit': 'exact: the instant of each hit',
  }
  const columns = ['peak', 'admitted']
  let cells
  const table = () => {
    cells ??= frame.racers.map((racer, i) => {
      const row = columns.map(() => element('td'))
      columns.forEach((of, k) => { row[k].dataset.of = of })
      const line = element('tr', { className: 'r' + i }, element('th', { scope: 'row', className: 'name', textContent: racer.name }, element('small', { textContent: means[racer.name] })), ...row)
      line.dataset.racer = racer.name
      byID('racers').tBodies[0].append(line)
      return row
    })
    frame.racers.forEach((racer, i) => {
      const numbers = [commas(racer.peak), commas(racer.admitted)]
      numbers.forEach((text, k) => { if (cells[i][k].textContent != text) cells[i][k].textContent = text })
      cells[i][0].classList.toggle('over', racer.peak > frame.max)
    })
  }

  const span = () => Math.max(2.5 * frame.per, 240 * frame.grid)

  const rods = newRods(byID('rods'))
  const draw = () => {
    waiting = false
    const short = frame.playing && performance.now() - spoken < 250
    lanes()
    table()
    rods(frame.rods, frame.max, frame.playing ? frame.speed * 50 : 0, short)
    if (!short) {
      spoken = performance.now()
      byID('lanes').ariaLabel = `Of ${frame.max} in the last ${unit()}, the fixed window has admitted ${frame.racers[1].in}, abacus ${frame.racers[0].in}.`
      byID('reads').textContent = `Now ${frame.rods.ours} counts.`
      byID('fetched').textContent = frame.tried ? `The last attempt fetched ${frame.fetched.last}, all so far ${frame.fetched.mean.toFixed(2)} on average.` : ''
    }
    play.textContent = frame.playing ? 'Pause' : 'Play'
    byID('crowd').ariaPressed = frame.crowd
  }
  let waiting = false
  const soon = () => {
    if (!waiting && frame) {
      waiting = true
      requestAnimationFrame(draw)
    }
  }
  new ResizeObserver(soon).observe(byID('lanes'))
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', soon)

  const begin = () => {
    say(newRace.loads && !race ? 'abacus is on its way, 1 MB.' : '')
    race?.end()
    opening = true
    burstAt = undefined
    for (const e of document.querySelectorAll('.unit')) e.textContent = unit()
    race = newRace(limit.value, {
      begin: () => {
        samples = []
        fresh = true
        act('speed', pace())
        if (playing) act('play')
      },
      frame: next => {
        frame = next
        byID('bead').textContent = next.max > 10 ? Math.ceil(next.max / 10) + ' attempts' : 'an attempt'
        samples.push(...next.samples)
        const oldest = next.now - span()
        let old = 0
        while (old < samples.length && samples[old].at < oldest) old++
        samples.splice(0, old)
        next.said.forEach(say)
        if (fresh && calm) say('Paused, since this system asks for less motion. Step moves from attempt to attempt.')
        fresh = false
        // The opening burst is left in sight until somebody goes on.
        if (opening && next.tried && !next.planned) {
          burstAt ??= next.now
          if (next.playing && next.now > burstAt + next.per / 4) {
            opening = playing = false
            act('pause')
            say('Paused, with both sides of the boundary in the window. Play goes on; Crowd and Burst send more.')
          }
        }
        soon()
      },
    })
  }

  play.addEventListener('click', () => { opening = false; playing = !playing; act(playing ? 'play' : 'pause') })
  byID('step').addEventListener('click', () => { opening = playing = false; act('step') })
  speed.addEventListener('input', () => { showPace(); act('speed', pace()) })
  for (const b of document.querySelectorAll('[data-do]')) b.addEventListener('click', () => {
    act(b.dataset.do)
    opening = false
    if (b.id != 'hit' && !playing) act('play')
    if (b.id != 'hit') playing = true
  })
  limit.addEventListener('change', () => {
    speed.value = Math.log10(limit.selectedOptions[0].dataset.speed)
    const most = 2 * parseInt(limit.selectedOptions[0].text)
    bars.forEach(b => { b.value = b.value / b.max * most; b.max = most })
    showPace()
    begin()
  })

  // The pattern: the pointer draws over all bars.
  const bars = [...pattern.querySelectorAll('input')]
  const tell = () => { pattern.querySelector('output').textContent = commas(bars.reduce((sum, b) => sum + +b.value, 0)) + ' attempts' }
  const paint = e => {
    const bar = bars.find(b => { const r = b.getBoundingClientRect(); return e.clientX >= r.left && e.clientX < r.right })
    if (!bar) return
    const { top, height } = bar.getBoundingClientRect()
    bar.value = Math.round(bar.max * Math.min(1, Math.max(0, 1 - (e.clientY - top) / height)))
    tell()
  }
  const board = pattern.querySelector('.bars')
  board.addEventListener('pointerdown', e => { e.preventDefault(); board.setPointerCapture(e.pointerId); paint(e) })
  board.addEventListener('pointermove', e => { if (e.buttons) paint(e) })
  pattern.addEventListener('input', tell)
  pattern.addEventListener('reset', () => setTimeout(tell))
  pattern.addEventListener('submit', e => {
    e.preventDefault()
    opening = false
    playing = true
    byID('sandbox').scrollIntoView({ behavior: calm ? 'instant' : 'smooth' })
    act('pattern', bars.map(b => b.value).join(' '))
    act('play')
  })
  limit.selectedIndex = 0 // a reload keeps what was chosen before
  showPace()
  tell()
  new IntersectionObserver((entries, seen) => {
    if (!entries.some(e => e.isIntersecting)) return
    seen.disconnect()
    if (race) return
    if (!newRace.loads) return begin()
    facts().then(({ race: still }) => {
      if (frame) return
      frame = still
      samples = still.samples
      still.said.forEach(say)
      soon()
    }, () => lost())
  }).observe(byID('sandbox'))
})()
