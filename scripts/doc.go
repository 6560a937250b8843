// Package scripts has tests of the repository itself: words and links of the docs, layers of packages, sizes of types,
// lengths of lines. Its folders are programs that build, compare and check the product.
package scripts
