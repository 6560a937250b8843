// Package protobuf takes the place of google.golang.org/protobuf. parquet-go alone imports it, to write messages as
// rows; lorasim has no messages. These are the names that parquet-go uses. No type of this program is a message, so
// none of it is called.
package protobuf
