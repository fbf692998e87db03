package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A worker of tests/support/clients/share_workers.py: it says each record that it has worked on, and accepts it then.
func work(bootstrap, topic, group string) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumeTopics(topic),
		kgo.ShareGroup(group),
		kgo.ShareMaxRecords(50),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) {
			if err := results.Error(); err != nil {
				fmt.Println("refused", err)
			}
		}),
	)
	if err != nil {
		return err
	}
	fmt.Println("begun")
	for {
		fetches := client.PollRecords(context.Background(), 50)
		for _, failed := range fetches.Errors() {
			fmt.Println("error", failed.Err)
		}
		for _, record := range fetches.Records() {
			fmt.Println("did", string(record.Value), record.DeliveryCount())
			client.MarkAcks(kgo.AckAccept, record)
		}
	}
}
