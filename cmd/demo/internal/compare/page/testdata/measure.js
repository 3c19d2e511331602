// Measures each frame of the page around it, and leaves what is wrong with
// them in #result.
async function measure(frame) {
  const doc = frame.contentDocument, view = frame.contentWindow, wrong = []
  const root = doc.documentElement
  const box = e => e.getBoundingClientRect()
  const name = e => (e.closest('.one')?.innerText ?? '') + ' ' + e.tagName + ' ' + e.textContent.trim().slice(0, 30)
  const overlap = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 0.5 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 0.5
  const pairs = (elements, what) => {
    const boxes = elements.map(box)
    for (let i = 0; i < boxes.length; i++)
      for (let j = 0; j < i; j++)
        if (overlap(boxes[i], boxes[j])) wrong.push(what + ': ' + name(elements[j]) + ' and ' + name(elements[i]))
  }

  if (view.innerWidth != frame.width) wrong.push('the window is ' + view.innerWidth + ' wide')
  if (view.matchMedia('(prefers-color-scheme: dark)').matches != (frame.dataset.scheme == 'dark')) wrong.push('the scheme is the other one')
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
  if (light(below(doc.body)) > 0.5 == (frame.dataset.scheme == 'dark')) wrong.push('the ground is ' + below(doc.body))
  const seen = new Set()
  for (const e of doc.body.querySelectorAll('*:not(script):not(.heat td)')) {
    if (![...e.childNodes].some(n => n.nodeType == 3 && n.textContent.trim())) continue
    const { color } = view.getComputedStyle(e), c = contrast(color, below(e)), key = color + below(e)
    if (c < 4.5 && !seen.has(key)) wrong.push('contrast of ' + c.toFixed(2) + ': ' + name(e))
    seen.add(key)
  }

  // The colours that charts are drawn in.
  const probe = doc.createElement('i')
  doc.body.append(probe)
  const ink = name => (probe.style.color = 'var(--' + name + ')', view.getComputedStyle(probe).color)
  for (const under of ['ground', 'panel']) {
    const stands = (name, least) => {
      const c = contrast(ink(name), ink(under))
      if (!(c >= least)) wrong.push(name + ' on ' + under + ' has the contrast ' + c + ', want ' + least)
      return c
    }
    for (const name of ['text', 'soft', 'line', 'ours', 'over', 'good']) stands(name, 4.5)
    stands('reference', 3)
    let least = 3
    for (let step = 1; step <= 6; step++) least = 1.15 * stands('h' + step, least) // each is told from the step before without its hue
  }

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
    const [drawn, axes] = pixels(canvas, curve ? ['line', 'over'] : ['line', 'ours'], ['soft'])
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

    for (const [i, cost] of [...section.querySelectorAll('.cost')].entries()) {
      const { dots } = data.costs.filter(c => c.dots?.length)[i], found = new Set(), r = box(cost.querySelector('.u-over'))
      await mouse(cost, 'mouseenter', 0, 0)
      for (let x = 4; x < r.width && found.size < dots.length; x += 10)
        for (let y = 4; y < r.height; y += 10) {
          move(cost, 'mousemove', x / r.width, y / r.height)
          for (const o of dots)
            if (!found.has(o.number) && says(cost).includes(o.number + ' ' + o.name + ': ' + o.bytes.toLocaleString('en', { maximumFractionDigits: 3 }) + ' bytes a key, ')) found.add(o.number)
        }
      if (found.size != dots.length) wrong.push('under the pointer are only the dots ' + [...found] + ' of ' + dots.length)
      const canvas = cost.querySelector('canvas'), picture = canvas.toDataURL()
      await drag(cost, 0.1, 0.1, 0.6, 0.7)
      if (canvas.toDataURL() == picture) wrong.push('a drag does not zoom')
      await mouse(cost, 'dblclick', 0.5, 0.5)
      if (canvas.toDataURL() != picture) wrong.push('a double click does not show all again')
      await mouse(cost, 'mouseleave', 0, 0)
    }
    const minute = section.querySelector('.heat td[title]')
    minute?.dispatchEvent(new view.PointerEvent('pointerover', { bubbles: true }))
    if (minute && says(section.querySelector('.heat')) != minute.title) wrong.push('no count under the pointer')
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
