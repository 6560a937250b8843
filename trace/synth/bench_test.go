package synth

import "testing"

func BenchmarkNext(b *testing.B) {
	for _, bench := range []struct {
		name string
		edit func(*Config)
	}{
		{"exponential", func(*Config) {}},
		{"gamma4", func(c *Config) { c.Arrivals = Arrivals{Dist: Gamma, CV: []float64{4}} }},
		{"gamma0.5", func(c *Config) { c.Arrivals = Arrivals{Dist: Gamma, CV: []float64{0.5}} }},
		{"weibull4", func(c *Config) { c.Arrivals = Arrivals{Dist: Weibull, CV: []float64{4}} }},
		{"total-gamma4", func(c *Config) { c.Arrivals = Arrivals{Dist: Gamma, CV: []float64{4}, Total: true} }},
		{"gamma4/K=1000", func(c *Config) { c.Arrivals = Arrivals{Dist: Gamma, CV: []float64{4}}; c.Adapters = 1000 }},
		{"gamma4/K=100000", func(c *Config) {
			c.Arrivals, c.Adapters = Arrivals{Dist: Gamma, CV: []float64{4}}, 100000
		}},
		{"on-off", func(c *Config) { c.Pattern.OnOff = OnOff{On: 10, Off: 10, Factor: 0.1} }},
		{"diurnal", func(c *Config) { c.Pattern.Diurnal = Diurnal{Period: 86400, Amplitude: 0.8} }},
		{"drift+locality", func(c *Config) { c.Drift = 60; c.Locality = Locality{P: 0.5, Window: 4} }},
		{"inf", func(c *Config) { c.Rate = inf }},
	} {
		b.Run(bench.name, func(b *testing.B) {
			cfg := Default()
			cfg.Rate = 100
			bench.edit(&cfg)
			src, err := New(cfg)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := src.Next(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mreq/s")
		})
	}
}

func BenchmarkAlias(b *testing.B) {
	shares, err := Popularity{Kind: Zipf, Param: 0.9}.Shares(1000)
	if err != nil {
		b.Fatal(err)
	}
	a, r := newAlias(shares), stream(1, forPick, 0)
	b.ReportAllocs()
	for b.Loop() {
		a.draw(r)
	}
}
