// Draws the rods of a key: buckets as wires, counts as beads, lamps for the buckets that are added up,
// and the window as a frame.
const perBead = most => Math.max(1, Math.ceil(most / 10))
const drawRod = (of, rod, view, most, hurry) => {
  const { ctx, width, height } = canvas(of), n = rod.counts.length, cell = width / n
  const lamp = 9, floor = height - lamp - 6, top = 30
  const x = ms => Math.max(0, Math.min(width, (ms - rod.start) / rod.width * cell))
  const beads = 10, each = perBead(most), tall = Math.min((floor - top) / beads, cell * 1.1)
  const lit = (range, i) => i >= range.first && i < range.end
  if (!width) return
  if (rod.width * n < 5 * hurry) { // what flickers cannot be read
    ctx.fillStyle = ink('soft')
    ctx.textAlign = 'center'
    ctx.fillText('too fast to see: step, or slow down', width / 2, height / 2)
    return
  }
  for (let i = 0; i < n; i++) {
    const left = i * cell, middle = left + cell / 2, count = rod.counts[i], gap = cell > 4 ? 1 : 0.25
    if (count < 0) {
      ctx.strokeStyle = ink('reference')
      ctx.globalAlpha = 0.4
      ctx.beginPath()
      for (let y = top; y < floor; y += 6) { ctx.moveTo(left, y + 4); ctx.lineTo(left + cell, y) }
      ctx.stroke()
      ctx.globalAlpha = 1
    } else {
      ctx.fillStyle = ink('rule')
      ctx.fillRect(middle - 0.5, top, 1, floor - top)
    }
    ctx.fillStyle = ink(lit(rod.ours, i) ? 'ours' : 'reference')
    for (let k = 0, left = count; left > 0 && k < beads; k++, left -= each) {
      ctx.beginPath()
      ctx.ellipse(middle, floor - (k + 0.5) * tall, Math.max(0.3, Math.min(cell / 2 - gap / 2, 12)), tall / 2 - 0.5 > 0 ? tall / 2 - 0.5 : 0.5, 0, 0, 7)
      ctx.fill()
    }
    ctx.fillStyle = ink(lit(rod.ours, i) ? 'ours' : 'rule')
    ctx.globalAlpha = lit(rod.ours, i) ? 1 : 0.45
    ctx.fillRect(left + gap / 2, floor + 4, cell - gap, lamp)
    ctx.globalAlpha = 1
    if (count > 0 && cell > 22) {
      ctx.fillStyle = ink('text')
      ctx.textAlign = 'center'
      ctx.fillText(commas(count), middle, Math.max(26, floor - Math.min(beads, Math.ceil(count / each)) * tall - 4))
    }
  }
  // The window: what is outside is veiled, and an edge that is inside is a line.
  const from = x(view.from), to = x(view.now)
  ctx.fillStyle = ink('ground')
  ctx.globalAlpha = 0.55
  ctx.fillRect(0, 0, from, floor + 2)
  ctx.fillRect(to, 0, width - to, floor + 2)
  ctx.globalAlpha = 1
  ctx.strokeStyle = ink('frame')
  ctx.lineWidth = 2
  ctx.beginPath()
  ctx.moveTo(from, 1)
  ctx.lineTo(to, 1)
  if (from > 0) { ctx.moveTo(from, 0); ctx.lineTo(from, floor + 2) }
  if (to > from) ctx.stroke()
  ctx.fillStyle = ink('text')
  if (to < width) { // open: nothing is later than now
    ctx.setLineDash([3, 3])
    ctx.stroke(new Path2D(`M${to},0V${floor + 2}`))
    ctx.setLineDash([])
    ctx.textAlign = to > 50 ? 'right' : 'left'
    ctx.fillText('now', to + (to > 50 ? -5 : 5), 14)
  }
  const cut = rod.start + rod.ours.first * rod.width
  if (rod.ours.end > rod.ours.first && cut < view.from && cut + rod.width >= view.from) {
    ctx.textAlign = width - from > 100 ? 'left' : 'right'
    ctx.fillText('counts whole', from + (width - from > 100 ? 5 : -5), 14)
  }
  ctx.lineWidth = 1
}

// newRods shows views in a box: a figure for each rod, made again only if the rods
// are others. A view is shown with the most that a bucket may hold, with the time
// in milliseconds that passes between two views, and in short if the texts are to
// wait.
const newRods = box => {
  let shape, all = [], last
  const show = (view, most, hurry, short) => {
    last = [view, most, hurry, short]
    const now = view.rods.map(r => r.name + r.counts.length).join()
    if (now != shape) {
      shape = now
      all = view.rods.map(rod => {
        const drawn = element('canvas', { role: 'img' }), name = element('span', { className: 'name', textContent: rod.name }), reads = element('span', { className: 'soft' })
        const start = element('span', { className: 'soft' }), end = element('span', { className: 'soft' })
        return { drawn, reads, start, end, figure: element('figure', { className: 'rod ' + (rod.side || 'whole') }, element('p', {}, name, reads), drawn, element('p', {}, start, end)) }
      })
      box.replaceChildren(...all.map(a => a.figure))
    }
    view.rods.forEach((rod, i) => {
      const a = all[i], size = r => r.end - r.first, put = (e, text) => { if (e.textContent != text) e.textContent = text }
      drawRod(a.drawn, rod, view, most, hurry)
      if (short) return
      const day = ms => view.now - view.from >= 864e5 && rod.width < 864e5 ? new Date(ms).toUTCString().slice(0, 4).replace(',', ' ') : ''
      const end = rod.start + rod.counts.length * rod.width
      put(a.reads, `counts: ${size(rod.ours)}` + (i || perBead(most) == 1 ? '' : `; a bead: ${perBead(most)} hits`))
      put(a.start, day(rod.start) + utc(rod.start, rod.width))
      put(a.end, day(end) + utc(end, rod.width))
      a.drawn.ariaLabel = `${rod.name}: ${rod.counts.filter(n => n > 0).length} of ${rod.counts.length} buckets have hits; abacus adds up ${size(rod.ours)}.`
    })
  }
  new ResizeObserver(() => last && box.clientWidth && show(...last)).observe(box)
  return show
}
