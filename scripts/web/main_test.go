package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/chromedp/chromedp"

	"lorasim/internal/testbrowser"
)

// maxSize is what the folder may have, compressed.
const maxSize = 6_000_000

// TestPageWithoutServer: the folder is small, and its page answers in a browser as lorasim explore does, the replay
// included.
func TestPageWithoutServer(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program for browsers, which takes a minute")
	}
	dir := t.TempDir()
	size, err := build(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes compressed", size)
	if size > maxSize {
		t.Errorf("%d bytes compressed, expected at most %d", size, maxSize)
	}
	ctx := show(t, dir)
	eval := func(js string) string {
		t.Helper()
		return testbrowser.Eval(t, ctx, js)
	}
	wait := func(js string) {
		t.Helper()
		testbrowser.Wait(t, ctx, js, `document.getElementById('status').textContent`)
	}
	const settled = `!document.body.dataset.busy && document.querySelectorAll('#cards .card').length > 0`
	wait(settled)
	before := eval(`document.getElementById('cards').textContent`)
	turn := func(rate int) {
		eval(fmt.Sprintf(`(f => { f.value = '%d'; f.dispatchEvent(new Event('input')); })(
			document.getElementById('f-workload.request_rate'))`, rate))
		wait(`document.body.dataset.busy === 'true'`)
	}
	turn(14) // given up at once
	turn(15)
	wait(settled)
	if eval(`document.getElementById('cards').textContent`) == before {
		t.Error("another rate changes nothing")
	}
	eval(`document.querySelector('#replay .tools button').click()`)
	wait(`!!document.querySelector('#replay .worker')`)
	if n := eval(`document.querySelectorAll('#replay .worker').length`); n == "0" {
		t.Error("the replay has no worker")
	}
	ownLog(t, eval, wait)
	t.Logf("first results %s ms after the knob", eval(`document.body.dataset.picture`))
}

// show serves a folder and opens its page in a browser.
func show(t testing.TB, dir string) context.Context {
	t.Helper()
	ctx := testbrowser.Start(t)
	srv := httptest.NewServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(srv.Close)
	testbrowser.Watch(t, ctx, srv.URL)
	if err := chromedp.Do(ctx, chromedp.Navigate(srv.URL+"/")); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// ownLog: a file that is chosen or dropped is read in the browser; what is no log has its message beside the field.
func ownLog(t *testing.T, eval func(string) string, wait func(string)) {
	t.Helper()
	const field = `document.getElementById('f-workload.file')`
	const fault = `document.getElementById('f-workload.file-fault')`
	give := func(how, file string) {
		eval(fmt.Sprintf(`(() => {
			const data = new DataTransfer(), row = %s.closest('.knob'), how = %q;
			data.items.add(%s);
			if (how === 'drop') return row.dispatchEvent(new DragEvent('drop', { dataTransfer: data, cancelable: true }));
			const input = row.querySelector('input[type=file]');
			input.files = data.files;
			return input.dispatchEvent(new Event('change'));
		})()`, field, how, file))
	}
	const rows = `'time,model,prompt_tokens,completion_tokens\n' +
		'1,customer-a,100,20\n2,customer-b,200,30\n'.repeat(20)`
	const settled = ` && !document.body.dataset.busy && ` + fault + `.textContent === ''`
	const requests = `JSON.stringify(document.getElementById('f-workload.num_prompts').placeholder)`
	give("choose", `new File([`+rows+`], 'mine.csv')`)
	wait(field + `.value.endsWith('/mine.csv') && ` + requests + ` === '"40"'` + settled)
	give("drop", `new File(['this,is\nno,log\n'], 'bad.csv')`)
	wait(fault + `.textContent.includes('bad.csv')`)
	give("drop", `new File([`+rows+` + '3,customer-c,100,20\n'], 'more.csv')`)
	wait(field + `.value.endsWith('/more.csv') && ` + requests + ` === '"41"'` + settled)
	eval(`(f => { f.value = ''; f.dispatchEvent(new Event('input')); })(` + field + `)`)
	wait(`!document.body.dataset.busy && ` + requests + ` !== '"41"'`)
}
