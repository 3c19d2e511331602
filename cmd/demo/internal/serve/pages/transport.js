// Where the numbers of a page come from: a stream of the program and posts to it, or the same code
// in WebAssembly, for pages that are files. A page with the element <meta name="abacus-wasm"
// content="address of the module"> has the latter. Pages call newRace, and need not know.

// newRace begins a race under a limit. handlers.begin() is called when there is a race, and again
// with another one if the program was started again; handlers.frame(f) is called with each frame.
// The race stands still while the page is hidden. newRace returns act(todo, value), which presses
// a button, in turn and as soon as there is a race, and end(). newRace.loads reports whether the
// first race waits for a module: a page shows the race of its facts until a control is used.
const newRace = (() => {
  const module = document.querySelector('meta[name=abacus-wasm]')

  const ofProgram = (limit, handlers) => {
    let name = '', begun, hasBegun, acts = Promise.resolve() // in turn: requests overtake each other
    const wait = () => { if (!begun) hasBegun = new Promise(resolve => { begun = resolve }) }
    wait()
    const end = listen(() => '/race?' + new URLSearchParams({ limit, name }), {
      race: given => {
        const isNew = name != given
        name = given
        begun?.()
        begun = undefined
        if (isNew) handlers.begin() // else the race has stood still while this page had no stream
      },
      frame: handlers.frame,
      failed: text => { lost(text); end() },
    }, wait)
    const act = (todo, value = '') => acts = acts.then(async () => {
      await hasBegun // a click that comes early is not lost, nor one that comes while the program is away
      return send('/race/' + name, { do: todo, value })
    })
    return { act, end }
  }

  let loaded
  const load = async () => {
    const base = new URL(module.content, document.baseURI)
    const [program] = await Promise.all([
      fetch(base).then(answer => answer.ok ? answer.arrayBuffer() : Promise.reject(new Error(answer.statusText))),
      new Promise((resolve, reject) => document.head.append(element('script', { src: new URL('wasm_exec.js', base), onload: resolve, onerror: reject }))),
    ])
    const go = new Go()
    const { instance } = await WebAssembly.instantiate(program, go.importObject)
    go.run(instance) // sets abacus before it waits for calls
    return abacus
  }
  const ofModule = (limit, handlers) => {
    let race, timer, last
    const failed = error => { lost(error.message ?? error); end() }
    const tick = pressed => {
      if (document.hidden && !pressed) { last = undefined; return }
      const now = performance.now(), passed = now - (last ?? now)
      last = now
      const { error, frame } = race.frame(passed, pressed)
      if (error) failed(error)
      else if (frame) handlers.frame(frame)
    }
    loaded ??= load()
    loaded.catch(() => failed('This page could not load its program. Is the network there? Load the page again.'))
    const ready = loaded.then(abacus => {
      if (timer === null) return
      race = abacus.newRace(limit)
      if (race.error) return failed(race.error)
      timer = setInterval(tick, 50)
      handlers.begin()
      tick(true)
    }, () => {})
    const act = (todo, value = '') => ready.then(() => {
      if (!timer) return
      const error = race.act(todo, String(value))
      if (error) lost(error)
      tick(true)
    })
    const end = () => { clearInterval(timer); if (timer) race.end(); timer = null }
    return { act, end }
  }

  return Object.assign(module ? ofModule : ofProgram, { loads: Boolean(module) })
})()

// facts are the numbers of the scenes, which the same code has computed beforehand: a file, on
// either transport.
const facts = (() => {
  let given
  return () => given ??= fetch('facts.json').then(answer => answer.json())
})()
