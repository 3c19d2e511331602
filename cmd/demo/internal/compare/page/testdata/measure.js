// Measures each frame of the page around it, and leaves what is wrong with
// them in #result.
function measure(frame) {
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
    if (!e.closest('.scroll') && !e.closest('svg') && (box(e).right > root.clientWidth + 0.5 || box(e).left < -0.5)) wrong.push('beyond the window: ' + name(e))

  for (const table of doc.querySelectorAll('table')) {
    const cells = [...table.querySelectorAll('th,td')]
    pairs(cells, 'cells overlap')
    for (const c of cells) if (c.scrollWidth > c.clientWidth + 1) wrong.push('text leaves its cell: ' + name(c))
  }

  let shown = 0
  for (const figure of doc.querySelectorAll('figure')) {
    const charts = [...figure.querySelectorAll('svg')].filter(e => view.getComputedStyle(e).display != 'none')
    if (charts.length == 0) wrong.push('a figure shows nothing')
    for (const svg of charts) {
      shown++
      const b = box(svg)
      if (b.width < 200 || b.height < 50) wrong.push('a chart is ' + b.width + ' by ' + b.height)
      const texts = [...svg.querySelectorAll('text')]
      if (texts.length == 0) wrong.push('a chart has no text')
      pairs(texts, 'texts overlap in a chart')
      for (const t of texts) {
        const r = box(t)
        if (r.left < b.left - 2 || r.right > b.right + 2 || r.top < b.top - 2 || r.bottom > b.bottom + 2) wrong.push('text leaves its chart: ' + name(t))
        if (Math.min(r.height, r.width) < 1) wrong.push('text has no size: ' + name(t))
      }
    }
  }
  if (shown != frame.dataset.charts) wrong.push(shown + ' charts are shown')

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
  const readable = (e, color, least) => {
    const c = contrast(color, below(e)), key = color + below(e)
    if (c < least && !seen.has(key)) wrong.push('contrast of ' + c.toFixed(2) + ': ' + name(e))
    seen.add(key)
  }
  for (const e of doc.body.querySelectorAll('*')) {
    const style = view.getComputedStyle(e)
    if (e.closest('svg')) {
      if (e.tagName == 'text') readable(e, style.fill, 4.5)
      if (e.tagName == 'path' && style.stroke != 'none' && !e.classList.contains('s-rule')) readable(e, style.stroke, 3)
      if (e.tagName == 'path' && style.fill != 'none' && !e.classList.contains('f-panel')) readable(e, style.fill, 3)
    } else if ([...e.childNodes].some(n => n.nodeType == 3 && n.textContent.trim())) {
      readable(e, style.color, 4.5)
    }
  }
  return wrong
}

onload = () => {
  console.error('control: this message is seen')
  const result = {}
  for (const frame of document.querySelectorAll('iframe[title]')) {
    try {
      result[frame.title] = measure(frame)
    } catch (e) {
      result[frame.title] = [String(e.stack)]
    }
  }
  document.querySelector('#result').textContent = encodeURIComponent(JSON.stringify(result))
}
