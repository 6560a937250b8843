module github.com/twpayne/go-geom

go 1.26.0
