// The first process of a pod: it keeps the pod's namespaces, and reaps processes that others leave behind.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			os.Exit(0)
		}
		for {
			if process, _ := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); process <= 0 {
				break
			}
		}
	}
}
