// pixels are those of a copy of a canvas, which may be read often.
const pixels = canvas => {
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true })
  copy.drawImage(canvas, 0, 0)
  return copy.getImageData(0, 0, canvas.width, canvas.height)
}

// measured finds what is wrong with the page in its window.
const measured = scheme => {
  const wrong = [], { box, name, contrast, ink, pairs } = layout(window, scheme, wrong)
  for (const colour of ['r2', 'r3', 'r4', 'frame'])
    if (contrast(ink(colour), ink('ground')) < 3) wrong.push(colour + ' is hardly seen on the ground')
  for (const e of document.body.querySelectorAll('*')) {
    if (e.closest('.scroll, .uplot, input') || e.clientWidth <= 1) continue // 1 by 1: for screen readers alone
    if (e.scrollWidth > e.clientWidth + 1) wrong.push('cut off at the side: ' + name(e))
    if (e.clientHeight && getComputedStyle(e).overflowY != 'visible' && e.scrollHeight > e.clientHeight + 1) wrong.push('cut off below: ' + name(e))
  }
  for (const c of document.querySelectorAll('canvas')) {
    if (!c.closest('[role=img]')?.ariaLabel) wrong.push('a drawing has no text: ' + (c.id || c.className))
    if (!pixels(c).data.some(v => v)) wrong.push('nothing is drawn: ' + (c.ariaLabel ?? c.parentElement.className))
    if (Math.abs(c.width - box(c).width * devicePixelRatio) > 1.5) wrong.push('a drawing is ' + c.width + ' wide, shown in ' + box(c).width)
  }
  // A finger hits a control of 24 pixels, or a smaller one with so much room around
  // (WCAG 2.2, 2.5.8). The bars of a pattern are drawn over as a whole.
  const targets = controls().filter(e => !e.closest('.bars') && e.tabIndex == 0 && e.matches('a, button, input, select, textarea, summary'))
  pairs(targets, 'controls overlap')
  const boxes = targets.map(box)
  boxes.forEach((b, i) => {
    if (b.width >= 24 && b.height >= 24) return
    const x = (b.left + b.right) / 2, y = (b.top + b.bottom) / 2
    boxes.forEach((o, j) => {
      const dx = Math.max(o.left - x, 0, x - o.right), dy = Math.max(o.top - y, 0, y - o.bottom)
      if (i != j && Math.hypot(dx, dy) < 12) wrong.push('too small for a finger beside ' + name(targets[j]) + ': ' + name(targets[i]))
    })
  })
  return wrong
}

// controls are the elements that the Tab key must reach.
const controls = () => [...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex]')]
  .filter(e => !e.disabled && e.tabIndex >= 0 && e.checkVisibility({ visibilityProperty: true }))

// focused looks at the element that has got the focus: its frame is seen, and
// nothing lies over its middle.
const reached = new Set()
const focused = () => {
  const e = document.activeElement, wrong = []
  if (e == document.body) return wrong
  reached.add(e)
  const name = e.tagName + ' ' + (e.id || e.ariaLabel || e.textContent.trim().slice(0, 30)), style = getComputedStyle(e)
  if (style.outlineStyle == 'none' || parseFloat(style.outlineWidth) < 2) wrong.push('the focus is not seen: ' + name)
  const b = e.getBoundingClientRect(), middle = Math.max(0, Math.min(innerHeight - 1, (b.top + b.bottom) / 2))
  const top = document.elementFromPoint((b.left + b.right) / 2, middle)
  if (!top || !(e.contains(top) || top.contains(e))) wrong.push('the focus is hidden: ' + name + ' below ' + top?.tagName + ' ' + top?.className)
  return wrong
}

// missed are the controls that have not got the focus.
const missed = () => controls().filter(e => !reached.has(e)).map(e => e.outerHTML.slice(0, 80))
