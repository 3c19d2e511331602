package servertest

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

var (
	onlineReplica = regexp.MustCompile(`slave\d+:ip=127\.0\.0\.1,port=(\d+),state=online`)
	masterOffset  = regexp.MustCompile(`master_repl_offset:(\d+)`)
	replicaOffset = regexp.MustCompile(`slave_repl_offset:(\d+)`)
)

// inStep is nil if the master at addr has at least n replicas and each replica has
// every write from before the call. A replica that is merely connected may lose the
// last writes in a failover.
func inStep(addr string, n int) error {
	info, err := replication(addr)
	if err != nil {
		return err
	}
	written, err := offset(masterOffset, addr, info)
	if err != nil {
		return err
	}
	replicas := onlineReplica.FindAllStringSubmatch(info, -1)
	if len(replicas) < n {
		return fmt.Errorf("%s has fewer than %d replicas: %s", addr, n, info)
	}
	for _, match := range replicas {
		replica := "127.0.0.1:" + match[1]
		info, err := replication(replica)
		if err != nil {
			return err
		}
		copied, err := offset(replicaOffset, replica, info)
		if err != nil {
			return err
		}
		if copied < written {
			return fmt.Errorf("the replica %s has %d bytes of %d", replica, copied, written)
		}
	}
	return nil
}

// hasRole is nil if the node at addr takes itself for a "master" or a "slave".
func hasRole(addr, role string) error {
	info, err := replication(addr)
	if err != nil {
		return err
	}
	if !strings.Contains(info, "role:"+role+"\r\n") {
		return fmt.Errorf("%s is not a %s", addr, role)
	}
	return nil
}

func replication(addr string) (string, error) {
	answer, err := Command(addr, "INFO", "replication")
	if err != nil {
		return "", err
	}
	return fmt.Sprint(answer), nil
}

func offset(pattern *regexp.Regexp, addr, info string) (int64, error) {
	match := pattern.FindStringSubmatch(info)
	if match == nil {
		return 0, fmt.Errorf("%s does not say its offset: %s", addr, info)
	}
	return strconv.ParseInt(match[1], 10, 64)
}
