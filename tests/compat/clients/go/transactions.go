// Transactions of franz-go and sarama, and franz-go's consumers of KIP-848. Every line is the same for two servers that
// answer alike: nothing random and no times.
package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
)

const recordsPerTransaction = 10

func name(err error) string {
	var known *kerr.Error
	var ofSarama sarama.KError
	switch {
	case err == nil:
		return "no error"
	case errors.As(err, &known):
		return known.Message
	case errors.As(err, &ofSarama):
		return fmt.Sprint("code ", int16(ofSarama))
	}
	return err.Error()
}

func sorted(values map[string]int) []string {
	lines := []string{}
	for value, count := range values {
		lines = append(lines, fmt.Sprintf("%s:%d", value, count))
	}
	sort.Strings(lines)
	return lines
}

// committed counts the values of a topic by their word, as a reader of committed records sees them.
func committed(ctx context.Context, seed, topic string) map[string]int {
	reader, err := kgo.NewClient(kgo.SeedBrokers(seed), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	must("reader", err)
	defer reader.Close()
	ends, err := kadm.NewClient(reader).ListCommittedOffsets(ctx, topic)
	must("stable ends", err)
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	words := map[string]int{}
	for len(left) > 0 {
		fetches := reader.PollFetches(ctx)
		must("fetch", fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				words[string(r.Value)]++
			}
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
	return words
}

func produce(ctx context.Context, client *kgo.Client, topic, word string) error {
	var first error
	var lock sync.Mutex
	for i := 0; i < recordsPerTransaction; i++ {
		client.Produce(ctx, &kgo.Record{Topic: topic, Key: fmt.Append(nil, i), Value: []byte(word)}, func(_ *kgo.Record, err error) {
			lock.Lock()
			defer lock.Unlock()
			if first == nil {
				first = err
			}
		})
	}
	must("flush", client.Flush(ctx))
	return first
}

func described(ctx context.Context, admin *kadm.Client, id string) {
	all, err := admin.DescribeTransactions(ctx, id)
	must("describe transactions", err)
	one := all[id]
	partitions := 0
	for _, set := range one.Topics {
		partitions += len(set)
	}
	fmt.Println("transaction", one.State, "of epoch", one.ProducerEpoch, "with", partitions, "partitions, error", name(one.Err))
}

// settled waits until the markers of the id's last transaction are written.
func settled(ctx context.Context, admin *kadm.Client, id string) {
	for {
		all, err := admin.DescribeTransactions(ctx, id)
		must("describe transactions", err)
		if state := all[id].State; state != "PrepareCommit" && state != "PrepareAbort" {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func franzTransactions(options ...kgo.Opt) func(context.Context, string, string) {
	return func(ctx context.Context, seed, prefix string) {
		source, target, id := prefix+"-in", prefix+"-out", prefix
		plain, err := kgo.NewClient(kgo.SeedBrokers(seed))
		must("client", err)
		defer plain.Close()
		admin := kadm.NewClient(plain)
		_, err = admin.CreateTopics(ctx, 2, 1, nil, source, target)
		must("create topics", err)
		all := append([]kgo.Opt{kgo.SeedBrokers(seed), kgo.TransactionalID(id)}, options...)

		producer, err := kgo.NewClient(all...)
		must("producer", err)
		for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
			must("begin", producer.BeginTransaction())
			word := map[kgo.TransactionEndTry]string{kgo.TryCommit: "kept", kgo.TryAbort: "aborted"}[end]
			must("produce", produce(ctx, producer, source, word))
			described(ctx, admin, id)
			must("end", producer.EndTransaction(ctx, end))
			settled(ctx, admin, id)
			described(ctx, admin, id)
		}
		fmt.Println("committed", sorted(committed(ctx, seed, source)))

		must("begin", producer.BeginTransaction())
		must("produce", produce(ctx, producer, source, "fenced"))
		next, err := kgo.NewClient(all...)
		must("next", err)
		must("begin", next.BeginTransaction())
		must("produce", produce(ctx, next, source, "next"))
		fmt.Println("fenced producer sends:", name(produce(ctx, producer, source, "late")))
		fmt.Println("fenced producer commits:", name(producer.EndTransaction(ctx, kgo.TryCommit)))
		producer.Close()
		must("end", next.EndTransaction(ctx, kgo.TryCommit))
		settled(ctx, admin, id)
		next.Close()
		fmt.Println("committed", sorted(committed(ctx, seed, source)))
		franzCopies(ctx, admin, seed, prefix, source, target, options)
	}
}

// franzCopies reads, writes and commits offsets in transactions: the first is aborted, so its records come again.
func franzCopies(ctx context.Context, admin *kadm.Client, seed, prefix, source, target string, options []kgo.Opt) {
	for _, protocol := range []string{"classic", "consumer"} {
		group := prefix + "-" + protocol
		all := append([]kgo.Opt{kgo.SeedBrokers(seed), kgo.TransactionalID(group), kgo.ConsumerGroup(group), kgo.ConsumeTopics(source),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
			kgo.RequireStableFetchOffsets()}, options...)
		if protocol == "consumer" {
			all = append(all, kgo.Balancers(kgo.RangeBalancer()), kgo.ServerSideBalancer())
		}
		session, err := kgo.NewGroupTransactSession(all...)
		must("session", err)
		rounds, copied := 0, 0
		for copied < 3*recordsPerTransaction {
			fetches := session.PollFetches(ctx)
			must("fetch", fetches.Err())
			must("begin", session.Begin())
			count := 0
			fetches.EachRecord(func(r *kgo.Record) {
				count++
				session.Produce(ctx, &kgo.Record{Topic: target, Key: r.Key, Value: append([]byte(protocol+" "), r.Value...)},
					func(_ *kgo.Record, err error) { must("produce", err) })
			})
			must("flush", session.Client().Flush(ctx))
			rounds++
			ended, err := session.End(ctx, kgo.TransactionEndTry(rounds > 1))
			must("end", err)
			if ended {
				copied += count
			}
		}
		settled(ctx, admin, group)
		groups, err := admin.ListGroupsByType(ctx, []string{protocol})
		must("groups", err)
		fmt.Println("copied", copied, "by a group of type", protocol, groups[group].State)
		session.Close()
		fmt.Println("copies", sorted(committed(ctx, seed, target)))
		offsets, err := admin.FetchOffsets(ctx, group)
		must("offsets", err)
		ends, err := admin.ListCommittedOffsets(ctx, source)
		must("ends", err)
		for partition := int32(0); partition < 2; partition++ {
			offset, _ := offsets.Lookup(source, partition)
			end, _ := ends.Lookup(source, partition)
			fmt.Println("partition", partition, "is read", end.Offset-offset.At <= 1) // the last marker has an offset, too
		}
	}
}

// member is a consumer of the new protocol and what it has.
type member struct {
	client  *kgo.Client
	lock    sync.Mutex
	owned   map[int32]bool
	records int
}

func joined(seed, topic, group string, options ...kgo.Opt) *member {
	one := &member{owned: map[int32]bool{}}
	change := func(has bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
			one.lock.Lock()
			defer one.lock.Unlock()
			for _, part := range parts[topic] {
				if has {
					one.owned[part] = true
				} else {
					delete(one.owned, part)
				}
			}
		}
	}
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(seed), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()),
		kgo.OnPartitionsAssigned(change(true)), kgo.OnPartitionsRevoked(change(false)), kgo.OnPartitionsLost(change(false)),
		kgo.DisableAutoCommit()}, options...)...)
	must("member", err)
	one.client = client
	return one
}

func (m *member) size() int {
	m.lock.Lock()
	defer m.lock.Unlock()
	return len(m.owned)
}

// until polls all members until the condition holds.
func until(ctx context.Context, what string, holds func() bool, members ...*member) {
	for !holds() {
		must(what, ctx.Err())
		for _, one := range members {
			short, stop := context.WithTimeout(ctx, 50*time.Millisecond)
			fetches := one.client.PollFetches(short)
			stop()
			one.records += fetches.NumRecords()
		}
	}
	fmt.Println(what)
}

func sizes(members ...*member) []int {
	found := []int{}
	for _, one := range members {
		found = append(found, one.size())
	}
	sort.Ints(found)
	return found
}

func franzConsumers(ctx context.Context, seed, topic string) {
	plain, err := kgo.NewClient(kgo.SeedBrokers(seed), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	must("client", err)
	defer plain.Close()
	admin := kadm.NewClient(plain)
	_, err = admin.CreateTopic(ctx, 7, 1, nil, topic)
	must("create topic", err)
	for i := 0; i < 70; i++ {
		must("produce", plain.ProduceSync(ctx, kgo.StringRecord("value")).FirstErr())
	}
	shared := func(want string, members ...*member) func() bool {
		return func() bool { return fmt.Sprint(sizes(members...)) == want }
	}
	a := joined(seed, topic, topic, kgo.InstanceID("a"))
	until(ctx, "one has all", shared("[7]", a), a)
	b, c := joined(seed, topic, topic), joined(seed, topic, topic)
	until(ctx, "three share", shared("[2 2 3]", a, b, c), a, b, c)
	until(ctx, "all is read", func() bool { return a.records+b.records+c.records >= 70 }, a, b, c)
	for _, one := range []*member{a, b, c} {
		must("commit", one.client.CommitUncommittedOffsets(ctx))
	}
	groups, err := admin.DescribeConsumerGroups(ctx, topic)
	must("describe group", err)
	one := groups[topic]
	fmt.Println("group", one.State, one.AssignorName, "of", len(one.Members), "members, caught up", one.Epoch == one.AssignmentEpoch)
	c.client.Close()
	until(ctx, "two share", shared("[3 4]", a, b), a, b)
	a.client.LeaveGroup() // a static member: for a while
	a.client.Close()
	again := joined(seed, topic, topic, kgo.InstanceID("a"))
	until(ctx, "the static member is back: two share", shared("[3 4]", again, b), again, b)
	lags, err := admin.Lag(ctx, topic)
	must("lag", err)
	lags.Each(func(l kadm.DescribedGroupLag) { fmt.Println("lag", l.Lag.Total()) })
	b.client.Close()
	again.client.LeaveGroup()
	again.client.Close()
	must("leave", second(admin.LeaveGroup(ctx, kadm.LeaveGroup(topic).InstanceIDs("a"))).Error())
}

// saramaTransactions produces in transactions, is fenced, and copies with offsets of a classic group.
func saramaTransactions(version sarama.KafkaVersion) func(context.Context, string, string) {
	return func(ctx context.Context, seed, prefix string) {
		source, target := prefix+"-in", prefix+"-out"
		config := func(id string) *sarama.Config {
			config := sarama.NewConfig()
			config.Version = version
			config.Producer.Return.Successes = true
			config.Producer.RequiredAcks = sarama.WaitForAll
			config.Producer.Idempotent = true
			config.Producer.Transaction.ID = id
			config.Net.MaxOpenRequests = 1
			config.Consumer.Offsets.Initial = sarama.OffsetOldest
			config.Consumer.Offsets.AutoCommit.Enable = false
			config.Consumer.IsolationLevel = sarama.ReadCommitted
			return config
		}
		admin, err := sarama.NewClusterAdmin([]string{seed}, config(""))
		must("admin", err)
		defer admin.Close()
		for _, topic := range []string{source, target} {
			must("create topic", admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false))
		}
		producer, err := sarama.NewSyncProducer([]string{seed}, config(prefix))
		must("producer", err)
		send := func(by sarama.SyncProducer, topic, word string) (first error) {
			for i := 0; i < recordsPerTransaction && first == nil; i++ {
				_, _, first = by.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(word)})
			}
			return first
		}
		for _, word := range []string{"kept", "aborted", "kept"} {
			must("begin", producer.BeginTxn())
			must("send", send(producer, source, word))
			if word == "kept" {
				must("commit", producer.CommitTxn())
			} else {
				must("abort", producer.AbortTxn())
			}
		}
		fmt.Println("committed", sorted(committed(ctx, seed, source)))
		must("begin", producer.BeginTxn())
		must("send", send(producer, source, "fenced"))
		next, err := sarama.NewSyncProducer([]string{seed}, config(prefix))
		must("next", err)
		fmt.Println("fenced producer commits:", name(producer.CommitTxn()), "fatal", producer.TxnStatus()&sarama.ProducerTxnFlagFatalError != 0)
		producer.Close()
		must("begin", next.BeginTxn())
		must("send", send(next, source, "next"))
		must("commit", next.CommitTxn())
		fmt.Println("committed", sorted(committed(ctx, seed, source)))

		for _, commit := range []bool{false, true} {
			group, err := sarama.NewConsumerGroup([]string{seed}, prefix, config(""))
			must("group", err)
			copier := &copier{producer: next, group: prefix, target: target, commit: commit, done: make(chan struct{})}
			session, stop := context.WithCancel(ctx)
			ended := make(chan error, 1)
			go func() { ended <- group.Consume(session, []string{source}, copier) }()
			select {
			case <-copier.done:
			case err := <-ended:
				must("consume", fmt.Errorf("ended early: %w", err))
			}
			stop()
			must("consume", <-ended)
			must("leave", group.Close())
			fmt.Println("copies", sorted(committed(ctx, seed, target)))
			offsets, err := admin.ListConsumerGroupOffsets(prefix, map[string][]int32{source: {0}})
			must("offsets", err)
			fmt.Println("offset", offsets.Blocks[source][0].Offset)
		}
		must("close", next.Close())
	}
}

// copier copies all records in one transaction and ends it.
type copier struct {
	producer      sarama.SyncProducer
	group, target string
	commit        bool
	done          chan struct{}
}

func (c *copier) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (c *copier) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (c *copier) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	must("begin", c.producer.BeginTxn())
	for count := 1; count <= 3*recordsPerTransaction; count++ {
		message := <-claim.Messages()
		_, _, err := c.producer.SendMessage(&sarama.ProducerMessage{Topic: c.target, Value: sarama.ByteEncoder(message.Value)})
		must("send", err)
		must("add offset", c.producer.AddMessageToTxn(message, c.group, nil))
	}
	if c.commit {
		must("commit", c.producer.CommitTxn())
	} else {
		must("abort", c.producer.AbortTxn())
	}
	close(c.done)
	<-s.Context().Done()
	return nil
}

var transactionTours = map[string]func(context.Context, string, string){
	"franz-go transactions":            franzTransactions(),
	"franz-go transactions before 4.0": franzTransactions(kgo.MaxVersions(kversion.V3_8_0())),
	"franz-go consumers of KIP-848":    franzConsumers,
	"sarama transactions":              saramaTransactions(sarama.V4_1_0_0),
	"sarama transactions as of 2.1":    saramaTransactions(sarama.V2_1_0_0),
}
