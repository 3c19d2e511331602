// Shared by all pages: colours, a stream of events, and buttons.
'use strict'

// ink is a colour of the style sheet by its name. Colours change with the scheme.
const ink = (() => {
  let known = {}
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { known = {} })
  return name => known[name] ??= getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim()
})()

const byID = id => document.getElementById(id)
const commas = n => n.toLocaleString('en')

// element makes an element with properties and children.
const element = (name, properties, ...children) => {
  const e = Object.assign(document.createElement(name), properties)
  e.append(...children)
  return e
}

// send posts a form, and says so if the program does not take it.
const send = async (url, fields) => {
  try {
    const answer = await fetch(url, { method: 'POST', body: new URLSearchParams(fields) })
    if (!answer.ok) lost(await answer.text())
  } catch {
    lost()
  }
}

// lost tells that the program does not answer, or found(), that it does.
const lost = text => {
  const place = byID('gone')
  place.textContent = text || 'The program does not answer. Is it still running? This page tries again.'
  place.hidden = false
}
const found = () => { byID('gone').hidden = true }

// listen keeps a stream of events open; handlers are by the name of the event.
// away is called when the stream breaks. It returns a function that ends the stream.
const listen = (url, handlers, away = () => {}) => {
  let source, again
  const open = () => {
    source = new EventSource(url)
    for (const [name, handle] of Object.entries(handlers)) source.addEventListener(name, e => { found(); handle(JSON.parse(e.data)) })
    source.onerror = () => {
      lost()
      away()
      if (source.readyState != EventSource.CLOSED) return
      again = setTimeout(open, 2000) // the browser has given up
      const asked = new AbortController() // an EventSource does not tell why
      fetch(url, { signal: asked.signal }).then(async answer => { if (!answer.ok) lost(await answer.text()); asked.abort() }).catch(() => {})
    }
  }
  open()
  return () => { clearTimeout(again); source.close() }
}

// canvas prepares a canvas for drawing in CSS pixels, as sharp as the screen.
const canvas = of => {
  const scale = devicePixelRatio, width = of.clientWidth, height = of.clientHeight
  if (of.width != Math.round(width * scale) || of.height != Math.round(height * scale)) {
    of.width = Math.round(width * scale)
    of.height = Math.round(height * scale)
  }
  const ctx = of.getContext('2d')
  ctx.reset() // line widths of the last drawing, too
  ctx.scale(scale, scale)
  ctx.font = '12px system-ui, sans-serif'
  return { ctx, width, height }
}

// utc formats a time as precisely as steps of so many milliseconds need.
const utc = (ms, step) => {
  const iso = new Date(ms).toISOString()
  return step >= 864e5 ? iso.slice(0, 10) : step >= 6e4 ? iso.slice(11, 16) : iso.slice(11, 19)
}
