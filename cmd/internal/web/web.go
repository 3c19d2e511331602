// Package web has the common parts of the pages of both programs: the colours and the
// type of base.css, the library for charts, and a Site of pages with streams of events.
package web

import _ "embed"

var (
	// BaseCSS defines the colours of a light and of a dark page, and the type.
	//
	//go:embed base.css
	BaseCSS string

	// UPlotJS is the library for charts, below its licence: the package uplot of the
	// npm registry, version 1.6.32. UPlotCSS is the style of the charts.
	UPlotJS = "/*\n" + uPlotLicense + "*/\n" + uPlotJS
	//go:embed uplot-1.6.32/uPlot.min.css
	UPlotCSS string

	//go:embed uplot-1.6.32/uPlot.iife.min.js
	uPlotJS string
	//go:embed uplot-1.6.32/LICENSE
	uPlotLicense string
)
