package matrix

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// watchScript stops a process group once its input ends. The write end of that pipe is open
// in this program alone, so the input ends when this program does, however it was killed.
// Arguments: the group, the signal that asks it to stop, tenths of a second until it is killed.
const watchScript = `read -r _ && exit
kill -s "$2" -- "-$1" 2>/dev/null
while [ "$3" -gt 0 ] && kill -s 0 -- "-$1" 2>/dev/null; do
	sleep 0.1
	set -- "$1" "$2" $(($3 - 1))
done
kill -s KILL -- "-$1" 2>/dev/null`

// watch has a process group stopped when this program ends without doing so itself, by
// kill -9 or a second interrupt. The function returned ends the watch.
func watch(group int, stop string, timeout time.Duration) (end func(), err error) {
	r, w, err := os.Pipe() // closed in commands that start later: os.Pipe sets O_CLOEXEC
	if err != nil {
		return nil, err
	}
	defer r.Close()
	tenths := max(1, min(timeout, time.Hour)/(100*time.Millisecond))
	c := exec.Command("/bin/sh", "-c", watchScript, "watch", strconv.Itoa(group), stop, strconv.Itoa(int(tenths)))
	c.Stdin = r
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt from the terminal is not for it
	if err := c.Start(); err != nil {
		w.Close()
		return nil, err
	}
	return func() {
		w.WriteString("\n") // it ends without a signal to the group
		w.Close()
		c.Wait()
	}, nil
}
