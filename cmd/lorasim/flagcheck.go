package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lorasim/internal/bounds"
	"lorasim/internal/suggest"
)

// boundsKey annotates a flag with the numbers it takes (package bounds; of a
// duration: s).
const boundsKey = "bounds"

// within says which numbers flags take; every flag that is a number needs it,
// but for settings of the scenario, which have checks of their own.
func within(cmd *cobra.Command, text string, names ...string) {
	bounds.MustParse(text)
	for _, n := range names {
		if err := cmd.Flags().SetAnnotation(n, boundsKey, []string{text}); err != nil {
			panic(err) // the flag was not defined: a fault of the caller
		}
	}
}

// checkBounds checks the flags that were given.
func checkBounds(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		text := f.Annotations[boundsKey]
		if len(text) == 0 || err != nil {
			return
		}
		b, value := bounds.MustParse(text[0]), f.Value.String()
		for _, one := range strings.Split(strings.Trim(value, "[]"), ",") {
			x, e := strconv.ParseFloat(one, 64)
			if d, isTime := time.ParseDuration(one); e != nil && isTime == nil {
				x, e = d.Seconds(), nil
			}
			if e != nil || !b.Has(x) {
				err = fmt.Errorf("--%s: %q is not %s", f.Name, one, strings.TrimSpace(kindOf(f)+" "+b.String()))
			}
		}
	})
	return err
}

// kindOf is what a flag takes, for people.
func kindOf(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "int", "int64", "uint64", "intSlice":
		return "a whole number"
	case "float64":
		return "a number"
	case "duration":
		return "a duration such as 500ms or 1m30s"
	case "bool":
		return "true or false"
	}
	return "a " + f.Value.Type()
}

// flagError words an error of the flag library for people.
func flagError(cmd *cobra.Command, err error) error {
	var value *pflag.InvalidValueError
	var unknown *pflag.NotExistError
	var missing *pflag.ValueRequiredError
	switch {
	case errors.As(err, &value):
		f := value.GetFlag()
		if _, ok := f.Value.(*settingValue); ok {
			return usage(fmt.Errorf("--%s: %w", f.Name, errors.Unwrap(err)))
		}
		want := kindOf(f)
		if text := f.Annotations[boundsKey]; len(text) > 0 {
			want = strings.TrimSpace(want + " " + bounds.MustParse(text[0]).String())
		}
		return usage(fmt.Errorf("--%s: %q is not %s", f.Name, value.GetValue(), want))
	case errors.As(err, &unknown):
		name := unknown.GetSpecifiedName()
		if unknown.GetSpecifiedShortnames() != "" {
			return usage(fmt.Errorf("unknown flag -%s in -%s", name, unknown.GetSpecifiedShortnames()))
		}
		var known []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				known = append(known, "--"+f.Name)
			}
		})
		return usage(suggest.Unknown("flag", "--"+name, known))
	case errors.As(err, &missing):
		f := missing.GetFlag()
		return usage(fmt.Errorf("--%s: the value is missing, expected %s", f.Name, kindOf(f)))
	}
	return usage(err)
}
