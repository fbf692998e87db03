// The copier of tests/support/clients/group_copier.py with franz-go's GroupTransactSession, which aborts what a
// rebalance overtook and goes back to what is committed by itself.
//
//	copier BOOTSTRAP SOURCE TARGET GROUP NAME PER_TRANSACTION ABORTED PROTOCOL
//	copier share BOOTSTRAP TOPIC GROUP
package main

import (
	"context"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const answerWithin = 15 * time.Second

func main() {
	run := func() error { return copyRecords(os.Args[1:]) }
	if os.Args[1] == "share" {
		run = func() error { return work(os.Args[2], os.Args[3], os.Args[4]) }
	}
	if err := run(); err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
}

func copyRecords(args []string) error {
	bootstrap, source, target, group, name, protocol := args[0], args[1], args[2], args[3], args[4], args[7]
	perTransaction, err := strconv.Atoi(args[5])
	if err != nil {
		return err
	}
	aborted, err := strconv.ParseFloat(args[6], 64)
	if err != nil {
		return err
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.Balancers(kgo.StickyBalancer()),
		kgo.TransactionalID(name),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.SessionTimeout(3 * time.Second),
		kgo.HeartbeatInterval(400 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
	}
	if protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	}
	session, err := kgo.NewGroupTransactSession(options...)
	if err != nil {
		return err
	}
	fmt.Println("begun")
	for {
		records, err := poll(session, perTransaction)
		if err != nil {
			return err
		}
		if len(records) == 0 {
			fmt.Println("idle")
			continue
		}
		committed, err := copyOnce(session, records, target, rand.Float64() >= aborted)
		if err != nil {
			return err
		}
		if committed {
			fmt.Println("committed", len(records))
		} else {
			fmt.Println("aborted 0")
		}
	}
}

func poll(session *kgo.GroupTransactSession, atMost int) ([]*kgo.Record, error) {
	wait, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	fetches := session.PollRecords(wait, atMost)
	for _, failed := range fetches.Errors() {
		if wait.Err() == nil {
			return nil, failed.Err
		}
	}
	return fetches.Records(), nil
}

func copyOnce(session *kgo.GroupTransactSession, records []*kgo.Record, target string, commit bool) (bool, error) {
	wait, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	if err := session.Begin(); err != nil {
		return false, err
	}
	sent := kgo.AbortingFirstErrPromise(session.Client())
	for _, record := range records {
		session.Produce(wait, &kgo.Record{
			Topic: target, Partition: record.Partition, Key: record.Key, Value: record.Value,
		}, sent.Promise())
	}
	commit = sent.Err() == nil && commit
	return session.End(wait, kgo.TransactionEndTry(commit))
}
