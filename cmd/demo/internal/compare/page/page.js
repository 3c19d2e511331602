// Draws the charts of each section from the numbers in its JSON. A drag zooms,
// a double click shows all again; the sentence below a chart tells the values
// under the pointer.
(() => {
  'use strict'
  const charts = []
  const ink = name => getComputedStyle(document.documentElement).getPropertyValue('--' + name)
  const font = size => size + 'px system-ui, sans-serif'
  const axis = more => ({ stroke: () => ink('soft'), font: font(11), grid: { stroke: () => ink('rule'), width: 1 }, ticks: { show: false }, ...more })
  const short = v => v.toLocaleString('en', { notation: v < 1e4 ? 'standard' : 'compact', maximumSignificantDigits: 3 })
  const long = v => v.toLocaleString('en', { maximumFractionDigits: 3 })
  const time = (seconds, from, to) => new Date(seconds * 1000).toISOString().slice(from, to).replace('T', ' ')

  // show draws a chart as wide as its box, now and when the box changes.
  const show = (box, height, options, data) => {
    const size = () => ({ width: box.clientWidth, height })
    const chart = new uPlot({
      ...size(), legend: { show: false }, tzDate: s => uPlot.tzDate(new Date(s * 1000), 'UTC'), padding: [8, 12, 0, 0], ...options,
    }, data, box)
    new ResizeObserver(() => chart.setSize(size())).observe(box)
    charts.push(() => (chart.setSize(size()), chart.redraw(false)))
  }

  // curve draws the true windows of algorithm i. The line and the ground below
  // it have another colour above the limit.
  const curve = (box, d, i, sync) => {
    const says = box.nextElementSibling, said = says.textContent, over = says.classList.contains('beyond')
    const split = (above, below) => u => {
      const { top, height } = u.bbox, at = Math.min(1, Math.max(0, (u.valToPos(d.max, 'y', true) - uPlot.pxRatio - top) / height))
      const gradient = u.ctx.createLinearGradient(0, top, 0, top + height)
      for (const [stop, color] of [[at, ink(above)], [at, below ? ink(below) : 'transparent']]) gradient.addColorStop(stop, color)
      return gradient
    }
    const exact = i ? [d.counts[0]] : []
    const thin = (color, more) => ({ stroke: () => ink(color), width: 1, points: { show: false }, ...more })
    show(box, 150, {
      cursor: { y: false, sync: { key: sync }, points: { size: 7, fill: () => ink('text'), stroke: () => ink('ground'), width: 1 } },
      scales: { y: { range: [0, d.top * 1.06] } },
      axes: [
        axis({ space: 60, size: 24, values: (u, at, _, space, step) => at.map(s =>
          step < 1 ? time(s, 17, 23) : step < 60 ? time(s, 11, 19) : s % 86400 ? time(s, 11, 16) : new Date(s * 1000).toUTCString().slice(5, 11)) }),
        axis({ space: 30, size: 44, values: (u, at) => at.map(short), incrs: [1, 2, 5].flatMap(n => [...Array(16).keys()].map(e => n * 10 ** e)).sort((a, b) => a - b) }),
      ],
      series: [
        {},
        { stroke: split('over', box.classList.contains('ours') ? 'ours' : 'line'), width: 1.6, fill: split('beyond'), fillTo: () => d.max },
        ...exact.map(() => thin('reference')),
        thin('text', { dash: [5, 3] }),
      ],
      hooks: { setCursor: [u => {
        const j = u.cursor.idx, n = j == null ? null : d.counts[i][j]
        says.textContent = n == null ? said : `${time(d.times[j], 0, 19)} UTC: ${long(n)} in the window` + exact.map(e => `; exact: ${long(e[j])}`).join('')
        says.classList.toggle('beyond', n == null ? over : n > d.max)
      }] },
    }, [d.times, d.counts[i], ...exact, d.times.map(() => d.max)])
  }

  // round finds round numbers on a logarithmic axis.
  const round = (low, high) => {
    const steps = high / low > 300 ? [1] : [1, 2, 5], all = []
    for (let e = Math.floor(Math.log10(low)); 10 ** e <= high; e++) all.push(...steps.map(s => +`${s}e${e}`).filter(v => v >= low && v <= high))
    return all
  }

  // growth draws the bytes of a key by its hits: a line for each algorithm, with the
  // name at the end.
  const growth = (box, d) => {
    const says = box.nextElementSibling, said = 'Point at a number of hits for the bytes.'
    const all = d.lines.flatMap(l => l.bytes), low = Math.min(...all), high = Math.max(...all)
    const paint = l => ({ stroke: () => ink(l.source == 'abacus' ? 'ours' : 'line'), width: l.default && !l.burst ? 3 : 1.5, dash: l.burst ? [6, 4] : l.source == 'abacus' && !l.default ? [2, 3] : [], points: { show: false } })
    const logarithmic = more => axis({ labelFont: font(12), labelSize: 20, splits: (u, _, a, b) => round(a, b), filter: (u, all) => all, values: (u, at) => at.map(short), ...more })
    const names = u => {
      const { ctx, bbox } = u, px = uPlot.pxRatio, last = d.hits.length - 1
      ctx.save()
      ctx.font = font(12 * px)
      ctx.textAlign = 'left'
      ctx.textBaseline = 'middle'
      let floor = Infinity
      for (const l of [...d.lines].sort((a, b) => a.bytes[last] - b.bytes[last])) {
        floor = Math.min(u.valToPos(l.bytes[last], 'y', true), floor)
        ctx.fillStyle = ink(l.source == 'abacus' ? 'ours' : 'line')
        ctx.fillText(l.name, bbox.left + bbox.width + 6 * px, floor)
        floor -= 14 * px
      }
      ctx.restore()
    }
    show(box, 340, {
      padding: [12, 90, 0, 0],
      cursor: { y: false, points: { size: 7 } },
      scales: { x: { time: false, distr: 3 }, y: { distr: 3, range: [low / 1.3, high * 1.3] } },
      axes: [logarithmic({ label: 'hits of a key in a window', size: 26, space: 40 }), logarithmic({ label: 'bytes of a key', size: 52 })],
      series: [{}, ...d.lines.map(paint)],
      hooks: { draw: [names], setCursor: [u => {
        const i = u.cursor.idx
        says.textContent = i == null ? said : `${long(d.hits[i])} hits: ${d.lines.map(l => `${l.name} ${long(l.bytes[i])}`).join('; ')} bytes`
      }] },
    }, [d.hits, ...d.lines.map(l => l.bytes)])
    says.textContent = said
  }

  document.querySelectorAll('section').forEach(section => {
    const d = JSON.parse(section.querySelector('script').textContent)
    section.querySelectorAll('.curve').forEach((box, i) => curve(box, d, i, section.id))
    section.querySelectorAll('.growth').forEach(box => growth(box, d.growth))
  })
  for (const query of ['print', '(prefers-color-scheme: dark)']) matchMedia(query).addEventListener('change', () => charts.forEach(draw => draw()))
})()
