package replay

import _ "embed" // the view

//go:embed replay.js
var script string

// Script returns the view of [Replay.JSON]: an ES module that exports mountReplay(element, data).
func Script() string { return script }
