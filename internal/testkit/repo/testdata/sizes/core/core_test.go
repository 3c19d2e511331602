package core

var inTests = 1
