package matrix

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// watchScript stops a process group once its input ends. It is told the group by the first
// line; a second line ends it without a signal to the group. The write end of the pipe is
// open in this program alone, and in the group until it has said which it is. So the input
// ends when this program does, however it was killed. Arguments: the signal that asks the
// group to stop, tenths of a second until it is killed.
const watchScript = `read -r group || exit
read -r _ && exit
kill -s "$1" -- "-$group" 2>/dev/null
while [ "$2" -gt 0 ] && kill -s 0 -- "-$group" 2>/dev/null; do
	sleep 0.1
	set -- "$1" $(($2 - 1))
done
kill -s KILL -- "-$group" 2>/dev/null`

// watchedScript runs a command of the shell after it has told the watch its group.
const watchedScript = `echo $$ >&3; exec 3>&-; exec /bin/sh -c "$1"`

// startWatched starts a command of the shell in a process group of its own, which is
// stopped when this program ends without doing so itself: by kill -9, a hang-up or a second
// interrupt. The function returned ends the watch.
func startWatched(c *exec.Cmd, command string, stop Stop) (end func(), err error) {
	r, w, err := os.Pipe() // commands do not inherit it: os.Pipe sets O_CLOEXEC
	if err != nil {
		return nil, err
	}
	defer r.Close()
	tenths := max(1, min(stop.Timeout, time.Hour)/(100*time.Millisecond))
	watch := exec.Command("/bin/sh", "-c", watchScript, "watch", stop.Signal, strconv.Itoa(int(tenths)))
	watch.Stdin = r
	watch.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt from the terminal is not for it
	if err := watch.Start(); err != nil {
		w.Close()
		return nil, err
	}
	end = func() {
		w.WriteString("\n")
		w.Close()
		watch.Wait()
	}
	c.Path, c.Args = "/bin/sh", []string{"/bin/sh", "-c", watchedScript, "run", command}
	c.ExtraFiles = []*os.File{w}
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		w.WriteString("\n")
		end()
		return nil, err
	}
	return end, nil
}
