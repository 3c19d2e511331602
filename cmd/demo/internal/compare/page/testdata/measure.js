// Measures each frame of the page around it, and leaves what is wrong with
// them in #result.
async function measure(frame) {
  const doc = frame.contentDocument, view = frame.contentWindow, wrong = []
  const root = doc.documentElement
  if (view.innerWidth != frame.width) wrong.push('the window is ' + view.innerWidth + ' wide')
  const { box, name, rgb, ink } = layout(view, frame.dataset.scheme, wrong)

  // pixels counts those of a chart that have one of the colours, for each list of colours.
  const pixels = (canvas, ...lists) => {
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height), colours = lists.map(list => list.map(ink).map(rgb))
    const counts = lists.map(() => 0)
    for (let i = 0; i < data.length; i += 4)
      colours.forEach((list, k) => {
        if (data[i + 3] > 200 && list.some(c => Math.abs(data[i] - c[0]) + Math.abs(data[i + 1] - c[1]) + Math.abs(data[i + 2] - c[2]) < 12)) counts[k]++
      })
    return counts
  }
  const canvases = [...doc.querySelectorAll('figure canvas')]
  if (canvases.length != frame.dataset.charts) wrong.push(canvases.length + ' charts are shown')
  for (const canvas of canvases) {
    const b = box(canvas), section = canvas.closest('section'), curve = canvas.closest('.curve')
    const data = JSON.parse(section.querySelector('script').textContent)
    if (b.width < 200 || b.height < 100) wrong.push('a chart is ' + b.width + ' by ' + b.height)
    if (b.right > root.clientWidth + 0.5) wrong.push('a chart leaves the window')
    const [drawn, axes] = pixels(canvas, curve ? ['line', 'ours', 'over'] : ['line', 'ours'], ['soft'])
    // A curve on the ground is hidden by a limit of zero.
    const hidden = curve && Math.max(...data.counts[[...section.querySelectorAll('.curve')].indexOf(curve)]) < data.top / 50
    if (!hidden && drawn < (data.times.length == 1 ? 5 : 60)) wrong.push(drawn + ' pixels of data: ' + name(canvas))
    if (axes < 20) wrong.push(axes + ' pixels of axes: ' + name(canvas))
  }

  // move moves the mouse to a place of a chart, in parts of its width and its height;
  // mouse also waits for the effect.
  const move = (chart, type, x, y) => {
    const over = chart.querySelector('.u-over'), r = box(over)
    const event = new view.MouseEvent(type, { bubbles: true, clientX: r.left + x * r.width, clientY: r.top + y * r.height, movementX: 1, movementY: 1 })
    const target = type == 'mouseup' ? doc : over
    target.dispatchEvent(event)
  }
  const mouse = async (...event) => {
    move(...event)
    for (let i = 0; i < 4; i++) await null // the chart draws in a microtask
  }
  const says = chart => chart.nextElementSibling.textContent
  const drag = async (chart, x0, y0, x1, y1) => {
    await mouse(chart, 'mousedown', x0, y0)
    await mouse(chart, 'mousemove', x1, y1)
    await mouse(chart, 'mouseup', x1, y1)
  }
  for (const section of doc.querySelectorAll('section')) {
    const data = JSON.parse(section.querySelector('script').textContent)
    const curves = [...section.querySelectorAll('.curve')]
    const before = curves.map(says)
    const at = async x => (await mouse(curves[0], 'mousemove', x, 0.5), curves.map(says))
    await mouse(curves[0], 'mouseenter', 0.02, 0.5)
    const left = await at(0.02)
    left.forEach((s, i) => {
      const told = s.match(/^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC: ([\d,]+) in the window/)
      if (!told) return wrong.push('no value under the pointer: ' + s)
      const j = data.times.findIndex(t => new Date(t * 1000).toISOString().slice(0, 19).replace('T', ' ') == told[1])
      if (j < 0 || data.counts[i].every((n, j) => n.toLocaleString('en') != told[2])) wrong.push('a value that is not in the data: ' + s)
    })
    if (data.times.length > 1) {
      await drag(curves[0], 0.4, 0.5, 0.6, 0.5)
      const zoomed = await at(0.02)
      if (zoomed.some((s, i) => s.slice(0, 19) <= left[i].slice(0, 19))) wrong.push('no zoom: ' + zoomed[0] + ' after ' + left[0])
      await mouse(curves[1 % curves.length], 'dblclick', 0.5, 0.5)
      const again = await at(0.02)
      if (again.join() != left.join()) wrong.push('no way back: ' + again[0] + ', before ' + left[0])
    }
    await mouse(curves[0], 'mouseleave', 0.02, 0.5)
    if (curves.map(says).join() != before.join()) wrong.push('values stay when the pointer has left: ' + says(curves[0]))

    for (const box of section.querySelectorAll('.growth')) {
      const { hits, lines } = data.growth, long = n => n.toLocaleString('en')
      await mouse(box, 'mouseenter', 0.5, 0.5)
      for (const [x, i] of [[0.01, 0], [0.99, hits.length - 1]]) {
        await mouse(box, 'mousemove', x, 0.5)
        const want = long(hits[i]) + ' hits: ' + lines.map(l => l.name + ' ' + long(l.bytes[i])).join('; ') + ' bytes'
        if (says(box) != want) wrong.push('under the pointer is ' + says(box) + ', want ' + want)
      }
      await mouse(box, 'mouseleave', 0, 0)
    }
  }
  return wrong
}

onload = async () => {
  console.error('control: this message is seen')
  const result = {}
  for (const frame of document.querySelectorAll('iframe[title]')) {
    try {
      result[frame.title] = await measure(frame)
    } catch (e) {
      result[frame.title] = [String(e.stack)]
    }
  }
  document.querySelector('#result').textContent = encodeURIComponent(JSON.stringify(result))
}
