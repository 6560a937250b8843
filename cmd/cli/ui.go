package cli

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lorasim/bench/result"
	"lorasim/bench/serving/bearer"
	"lorasim/bench/serving/fleetpage"
	"lorasim/bench/serving/live"
)

// uiFlags configure the page of a benchmark.
type uiFlags struct {
	show     bool
	listen   string
	key      keyFlags
	hosts    repeated
	insecure bool
}

const uiHeading = "Page in the browser"

func (f *uiFlags) add(cmd *cobra.Command) {
	flags(cmd, uiHeading,
		opt(&f.show, "ui", false, "Serve a page that shows the workers during the run, and its result"),
		opt(&f.listen, "ui-listen", "127.0.0.1:0",
			"Address `HOST:PORT` of the page, port 0: any free port; implies --ui"))
	f.key.add(cmd, uiHeading, "ui-key", uiKeyEnv, "Key for the page",
		"Read keys for the page from `file`, one per line")
	flags(cmd, uiHeading,
		opt(&f.hosts, "ui-host", nil, "Further `name` allowed in Host of requests for the page; repeatable"),
		opt(&f.insecure, "ui-insecure", false, "Serve the page to other hosts even without a key"))
}

// ui is the page of a run; nil: there is none.
type ui struct {
	page *fleetpage.Server
	srv  *http.Server
}

// open serves the page, if it is wanted, and prints its address.
func (f *uiFlags) open(cmd *cobra.Command) (*ui, error) {
	if !f.show && !cmd.Flags().Changed("ui-listen") {
		return nil, nil
	}
	keys, err := f.key.read(cmd.Context())
	if err != nil {
		return nil, usage(err)
	}
	for _, name := range f.hosts {
		if err := checkHostName("--ui-host", name); err != nil {
			return nil, usage(err)
		}
	}
	l, err := listenGuarded("--ui-listen", f.listen, access{len(keys) > 0, f.insecure, "ui-key", "ui-insecure"})
	if err != nil {
		return nil, err
	}
	u := &ui{page: fleetpage.NewServer(bearer.New(keys...), f.hosts)}
	u.srv = &http.Server{Handler: u.page, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: maxHeader,
		ErrorLog: log.New(cmd.ErrOrStderr(), "lorasim: ", 0)}
	go u.srv.Serve(l) // ends with close
	say(cmd, "page at http://%s%s", l.Addr(), u.page.Path())
	return u, nil
}

// attach makes a run report to the page.
func (u *ui) attach(o *live.Options) {
	if u == nil {
		return
	}
	told := o.Progress
	o.Progress = func(q live.Progress) {
		told(q)
		u.page.Progress(q.Done, q.Failed, q.InFlight, q.Requests, q.Now)
	}
	o.Watch = u.page.Watch
}

// uiLinger is the longest time that a run waits for browsers to fetch the result.
const uiLinger = 2 * time.Second

// close shows the result of the run, with more lines of its first look, on the page, gives browsers a moment to fetch
// it, and ends the page.
func (u *ui) close(
	out *outputFlags, res *result.Result, more []result.LookLine, st *live.Stats, err error,
) {
	if u == nil {
		return
	}
	outcome, text := "The run has ended", strings.Builder{}
	switch {
	case err != nil:
		outcome = "The run failed: " + err.Error()
	case st != nil && st.Stopped:
		outcome = "The run was interrupted"
	}
	if res != nil {
		if err := out.writeText(&text, res, more); err != nil {
			fmt.Fprintln(&text, err)
		}
	}
	u.page.End(outcome, text.String())
	ctx, cancel := context.WithTimeout(context.Background(), uiLinger)
	defer cancel()
	if err := u.srv.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
		u.srv.Close()
	}
}
