//go:build !js

package tiers

import _ "time/tzdata" // for machines without zones; adds 450 kB to a program
