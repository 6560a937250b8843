package stats

// GroupBy groups rows by key. It returns the keys in the order of their first rows.
func GroupBy[Row any, Key comparable](rows []Row, key func(*Row) Key) (keys []Key, groups map[Key][]Row) {
	groups = map[Key][]Row{}
	for i := range rows {
		k := key(&rows[i])
		if groups[k] == nil {
			keys = append(keys, k)
		}
		groups[k] = append(groups[k], rows[i])
	}
	return keys, groups
}
