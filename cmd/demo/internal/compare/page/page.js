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
        { stroke: split('over', 'line'), width: 1.6, fill: split('beyond'), fillTo: () => d.max },
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

  // round finds round numbers on a logarithmic axis, and zero if it is there.
  const round = (low, high, least) => {
    const from = Math.max(low, least), steps = high / from > 300 ? [1] : [1, 2, 5], all = low <= 0 ? [0] : []
    for (let e = Math.floor(Math.log10(from)); 10 ** e <= high; e++) all.push(...steps.map(s => +`${s}e${e}`).filter(v => v >= from && v <= high))
    const every = Math.ceil(all.length / 9)
    return all.length > 1 ? all.filter((_, i) => i % every == 0) : [from, (from + high) / 2, high].map(v => +v.toPrecision(3))
  }

  // cost draws a dot for each algorithm, with its number or its name beside it.
  const cost = (box, d) => {
    const says = box.nextElementSibling, hint = 'Point at a dot for its numbers. Drag to zoom, double-click to see all.'
    const dots = [...d.dots].sort((a, b) => a.bytes - b.bytes), xs = dots.map(o => o.bytes), ys = dots.map(o => o.wrong)
    const place = (u, o, canvas) => [u.valToPos(o.bytes, 'x', canvas), u.valToPos(o.wrong, 'y', canvas)]
    const least = Math.min(...ys.filter(v => v > 0), Infinity), lowest = least < Infinity ? least : 1
    // all is a scale that shows all values, and whatever somebody zooms to.
    const all = (values, pad) => {
      const low = Math.min(...values), high = Math.max(...values), full = pad(low, high)
      return { range: (u, a, b) => a < b && (a > low || b < high) ? [a, b] : full }
    }
    const nearest = u => {
      const { left, top } = u.cursor, far = dots.map(o => place(u, o)).map(([x, y]) => Math.hypot(x - left, y - top))
      const i = far.indexOf(Math.min(...far))
      return left >= 0 && far[i] < 30 ? i : null
    }
    const together = (u, o, of) => of.filter(other => Math.hypot(...place(u, o).map((v, k) => v - place(u, other)[k])) < 6)
    const draw = u => {
      const { ctx, bbox } = u, px = uPlot.pxRatio, pitch = 14 * px, wide = box.clientWidth > 480
      const boxes = [], free = b => !boxes.some(o => b[0] < o[2] && o[0] < b[2] && b[1] < o[3] && o[1] < b[3])
      const inside = ([x0, y0, x1, y1]) => x0 >= bbox.left && y0 >= bbox.top && x1 <= bbox.left + bbox.width && y1 <= bbox.top + bbox.height
      ctx.save()
      if (d.line != null) {
        const y = u.valToPos(d.line, 'y', true)
        if (y >= bbox.top && y <= bbox.top + bbox.height) {
          ctx.strokeStyle = ink('text')
          ctx.lineWidth = px
          ctx.setLineDash([5 * px, 3 * px])
          ctx.stroke(new Path2D(`M${bbox.left},${y}h${bbox.width}`))
          ctx.setLineDash([])
          boxes.push([bbox.left, y - px, bbox.left + bbox.width, y + px])
        }
      }
      const seen = dots.filter(o => inside([...place(u, o, true), ...place(u, o, true)]))
      for (const o of seen) {
        const [x, y] = place(u, o, true), r = 6 * px
        ctx.fillStyle = ink(o.ours ? 'ours' : 'line')
        ctx.fill(new Path2D(o.ours ? `M${x - r},${y}l${r},${r}l${r},${-r}l${-r},${-r}z` : `M${x - r * 0.8},${y}a${r * 0.8},${r * 0.8} 0 1,0 ${r * 1.6},0a${r * 0.8},${r * 0.8} 0 1,0 ${-r * 1.6},0z`))
        boxes.push([x - r, y - r, x + r, y + r])
      }
      ctx.font = font(12 * px)
      ctx.textAlign = 'left'
      ctx.textBaseline = 'middle'
      ctx.lineJoin = 'round'
      for (let left = seen; left.length;) {
        const heap = together(u, left[0], left), o = left[0]
        left = left.filter(o => !heap.includes(o))
        const lines = wide ? heap.map(o => o.number + ' ' + o.name) : [heap.map(o => o.number).join(', ')]
        const [x, y] = place(u, o, true), w = Math.max(...lines.map(l => ctx.measureText(l).width)) + 4 * px, h = pitch * lines.length
        const tries = [10, 24, 40, 60, 85, 115].flatMap(r => [0, 4, 2, 6, 1, 7, 3, 5].map(k => {
          const cos = Math.cos(k * Math.PI / 4), sin = Math.sin(k * Math.PI / 4), cx = x + cos * (r * px + w / 2), cy = y + sin * (r * px + h / 2)
          return [cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2, r]
        }))
        const found = tries.find(b => inside(b) && free(b))
        if (!found) continue
        boxes.push(found)
        const [x0, y0, x1, y1, r] = found
        if (r > 10) {
          ctx.strokeStyle = ink('reference')
          ctx.lineWidth = 0.8 * px
          ctx.stroke(new Path2D(`M${x},${y}L${Math.min(Math.max(x, x0), x1)},${Math.min(Math.max(y, y0), y1)}`))
        }
        ctx.strokeStyle = ink('ground')
        ctx.lineWidth = 3 * px
        ctx.fillStyle = ink('text')
        for (const how of ['strokeText', 'fillText']) lines.forEach((l, k) => ctx[how](l, x0 + 2 * px, y0 + pitch * (k + 0.5)))
      }
      ctx.restore()
    }
    show(box, 340, {
      cursor: { drag: { x: true, y: true }, dataIdx: (u, series, i) => series == 0 ? i : nearest(u), points: { size: 16, fill: 'transparent', stroke: () => ink('text'), width: 2 } },
      scales: {
        x: { time: false, distr: 3, ...all(xs, (a, b) => [a * (b / a) ** -0.12 / 1.6, b * (b / a) ** 0.12 * 1.6]) },
        y: { ...(d.log ? { distr: 4, asinh: lowest } : {}),
          ...all(d.line == null ? ys : [...ys, d.line], (a, b) => d.log ? [a > 0 ? a / 2 : -lowest / 2, Math.max(b, lowest) * 2] : [Math.max(0, a - Math.max(0.1, (b - a) * 0.1)), b + Math.max(0.1, (b - a) * 0.1)]) },
      },
      axes: [
        axis({ label: 'memory per key, bytes', labelFont: font(12), labelSize: 20, size: 26, space: 40, splits: (u, _, a, b) => round(a, b, a), filter: (u, all) => all, values: (u, at) => at.map(short) }),
        axis({ label: d.label, labelFont: font(12), labelSize: 20, size: 44, ...(d.log && { splits: (u, _, a, b) => round(a, b, lowest), filter: (u, all) => all }), values: (u, at) => at.map(short) }),
      ],
      series: [{}, { paths: () => null, points: { show: false } }],
      hooks: { draw: [draw], setCursor: [u => {
        const i = nearest(u)
        says.textContent = i == null ? hint : together(u, dots[i], dots).map(o => `${o.number} ${o.name}: ${long(o.bytes)} bytes a key, ${long(o.wrong)} ${d.unit}`).join('; ')
      }] },
    }, [xs, ys])
    says.textContent = hint
  }

  document.querySelectorAll('section').forEach(section => {
    const d = JSON.parse(section.querySelector('script').textContent)
    section.querySelectorAll('.curve').forEach((box, i) => curve(box, d, i, section.id))
    const drawn = d.costs.filter(c => c.dots?.length)
    section.querySelectorAll('.cost').forEach((box, i) => cost(box, drawn[i]))
    const heat = section.querySelector('.heat'), says = heat?.nextElementSibling, said = says?.textContent
    heat?.addEventListener('pointerover', e => { says.textContent = e.target.title || said })
  })
  for (const query of ['print', '(prefers-color-scheme: dark)']) matchMedia(query).addEventListener('change', () => charts.forEach(draw => draw()))
})()
