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

// lost says that the program does not answer, at the foot of the window and in the
// title; found says that it does.
const title = document.title
const lost = text => {
  const place = byID('gone')
  place.textContent = text || 'The program does not answer. Is it still running? This page tries again.'
  place.hidden = false
  document.title = 'No answer · ' + title
}
const found = () => {
  if (byID('gone').hidden) return
  byID('gone').hidden = true
  document.title = title
}

// listen keeps a stream of events open while the page is shown; handlers are by the
// name of the event, and url() is asked each time. away is called when the stream
// breaks. It returns a function that ends the stream.
const listen = (url, handlers, away = () => {}) => {
  let source, again
  const close = () => { clearTimeout(again); source?.close() }
  const open = () => {
    close()
    if (document.hidden) return // a browser has six connections for all pages
    const to = url()
    source = new EventSource(to)
    for (const [name, handle] of Object.entries(handlers)) source.addEventListener(name, e => { found(); handle(JSON.parse(e.data)) })
    source.addEventListener('again', () => { close(); again = setTimeout(open, 1000) }) // another page has its turn
    source.onerror = () => {
      lost()
      away()
      const refused = source.readyState == EventSource.CLOSED
      close()
      again = setTimeout(open, 2000)
      if (!refused) return
      const asked = new AbortController() // an EventSource does not tell why
      fetch(to, { signal: asked.signal }).then(async answer => { if (!answer.ok) lost(await answer.text()); asked.abort() }).catch(() => {})
    }
  }
  document.addEventListener('visibilitychange', open)
  open()
  return () => { document.removeEventListener('visibilitychange', open); close() }
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
