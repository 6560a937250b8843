// Package liberation takes the place of codeberg.org/go-fonts/liberation, for gonum/plot. Twelve faces are 4.4 MB of a
// program whose pictures use one.
package liberation
