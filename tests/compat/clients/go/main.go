// Three Go clients in turn: `tour CLIENT BOOTSTRAP PREFIX`. Prints a line for each thing learnt; exits 1 at the first error.
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/IBM/sarama"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const recordsPerCodec = 50

func must(what string, err error) {
	if err != nil {
		fmt.Println(what, "failed:", err)
		os.Exit(1)
	}
}

func text(s string) *string { return &s }

func franz(ctx context.Context, seed, name string) {
	codecs := []kgo.CompressionCodec{
		kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(),
	}
	plain, err := kgo.NewClient(kgo.SeedBrokers(seed))
	must("client", err)
	defer plain.Close()
	admin := kadm.NewClient(plain)
	_, err = admin.CreateTopic(ctx, 3, 1, map[string]*string{"retention.ms": text("1000000")}, name)
	must("create topic", err)
	for _, codec := range codecs {
		producer, err := kgo.NewClient(kgo.SeedBrokers(seed), kgo.DefaultProduceTopic(name),
			kgo.ProducerBatchCompression(codec), kgo.UnknownTopicRetries(-1))
		must("producer", err)
		for i := 0; i < recordsPerCodec; i++ {
			producer.Produce(ctx, kgo.KeyStringRecord(fmt.Sprint(i), "value"),
				func(_ *kgo.Record, err error) { must("produce", err) })
		}
		must("flush", producer.Flush(ctx))
		producer.Close()
	}
	consumer, err := kgo.NewClient(kgo.SeedBrokers(seed), kgo.ConsumeTopics(name), kgo.ConsumerGroup(name),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	must("consumer", err)
	count := 0
	for count < len(codecs)*recordsPerCodec {
		fetches := consumer.PollFetches(ctx)
		must("fetch", fetches.Err())
		count += fetches.NumRecords()
	}
	fmt.Println("consumed", count)
	must("commit", consumer.CommitUncommittedOffsets(ctx))
	lags, err := admin.Lag(ctx, name)
	must("lag", err)
	lags.Each(func(l kadm.DescribedGroupLag) { fmt.Println("group", l.State, "lag", l.Lag.Total()) })
	consumer.Close()

	must("create partitions", second(admin.CreatePartitions(ctx, 5, name)).Error())
	configs, err := admin.DescribeTopicConfigs(ctx, name)
	must("describe configs", err)
	for _, config := range configs[0].Configs {
		if config.Key == "retention.ms" {
			fmt.Println("retention.ms", *config.Value)
		}
	}
	ends, err := admin.ListEndOffsets(ctx, name)
	must("end offsets", err)
	must("end offsets", ends.Error())
	_, err = admin.DeleteRecords(ctx, ends.Offsets())
	must("delete records", err)
	starts, err := admin.ListStartOffsets(ctx, name)
	must("start offsets", err)
	total := int64(0)
	starts.Each(func(o kadm.ListedOffset) { total += o.Offset })
	fmt.Println("deleted", total)
	_, err = admin.DescribeAllLogDirs(ctx, nil)
	must("log dirs", err)
	_, err = admin.DescribeClientQuotas(ctx, false, nil)
	must("quotas", err)
	_, err = admin.DeleteGroups(ctx, name)
	must("delete group", err)
	_, err = admin.DeleteTopics(ctx, name)
	must("delete topic", err)
}

type partitionsResult interface{ Error() error }

func second[T partitionsResult](result T, err error) T {
	must("request", err)
	return result
}

type counter struct {
	count, wanted int
	done          chan struct{}
}

func (c *counter) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (c *counter) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (c *counter) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		s.MarkMessage(message, "")
		if c.count++; c.count == c.wanted {
			close(c.done)
		}
	}
	return nil
}

func saramaAt(version sarama.KafkaVersion) func(context.Context, string, string) {
	return func(ctx context.Context, seed, name string) {
		config := sarama.NewConfig()
		config.Version = version
		config.Producer.Return.Successes = true
		config.Producer.RequiredAcks = sarama.WaitForAll
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
		config.Consumer.Offsets.Initial = sarama.OffsetOldest
		admin, err := sarama.NewClusterAdmin([]string{seed}, config)
		must("admin", err)
		defer admin.Close()
		must("create topic", admin.CreateTopic(name, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false))
		codecs := []sarama.CompressionCodec{
			sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4,
		}
		if version.IsAtLeast(sarama.V2_1_0_0) {
			codecs = append(codecs, sarama.CompressionZSTD)
		}
		for _, codec := range codecs {
			config.Producer.Compression = codec
			producer, err := sarama.NewSyncProducer([]string{seed}, config)
			must("producer", err)
			for i := 0; i < recordsPerCodec; i++ {
				_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: name, Value: sarama.StringEncoder("value")})
				must("send", err)
			}
			must("close", producer.Close())
		}
		group, err := sarama.NewConsumerGroup([]string{seed}, name, config)
		must("group", err)
		seen := &counter{wanted: recordsPerCodec * len(codecs), done: make(chan struct{})}
		session, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- group.Consume(session, []string{name}, seen) }()
		select {
		case <-seen.done:
		case err := <-ended:
			must("consume", fmt.Errorf("ended early: %w", err))
		}
		stop()
		must("consume", <-ended)
		must("leave", group.Close())
		fmt.Println("consumed", seen.count, "of", len(codecs), "codecs")
		offsets, err := admin.ListConsumerGroupOffsets(name, nil)
		must("offsets", err)
		fmt.Println("committed", offsets.Blocks[name][0].Offset)
		groups, err := admin.DescribeConsumerGroups([]string{name})
		must("describe group", err)
		fmt.Println("group", groups[0].State)
		must("alter config",
			admin.AlterConfig(sarama.TopicResource, name, map[string]*string{"retention.ms": text("1000000")}, false))
		must("delete topic", admin.DeleteTopic(name))
	}
}

func kafkaGo(ctx context.Context, seed, name string) {
	conn, err := kafkago.Dial("tcp", seed)
	must("dial", err)
	defer conn.Close()
	must("create topic", conn.CreateTopics(kafkago.TopicConfig{Topic: name, NumPartitions: 2, ReplicationFactor: 1}))
	codecs := []kafkago.Compression{0, kafkago.Gzip, kafkago.Snappy, kafkago.Lz4, kafkago.Zstd}
	for _, codec := range codecs {
		writer := &kafkago.Writer{Addr: kafkago.TCP(seed), Topic: name, Compression: codec,
			RequiredAcks: kafkago.RequireAll, BatchTimeout: 10 * time.Millisecond}
		for i := 0; i < recordsPerCodec; i += 10 {
			messages := make([]kafkago.Message, 10)
			for j := range messages {
				messages[j] = kafkago.Message{Key: fmt.Append(nil, i+j), Value: []byte("value")}
			}
			must("write", writer.WriteMessages(ctx, messages...))
		}
		must("close", writer.Close())
	}
	reader := kafkago.NewReader(kafkago.ReaderConfig{Brokers: []string{seed}, GroupID: name, Topic: name,
		StartOffset: kafkago.FirstOffset, MaxWait: 200 * time.Millisecond})
	keys := map[string]int{}
	for i := 0; i < len(codecs)*recordsPerCodec; i++ {
		message, err := reader.ReadMessage(ctx)
		must("read", err)
		keys[string(message.Key)]++
	}
	must("leave", reader.Close())
	counts := []int{}
	for _, n := range keys {
		counts = append(counts, n)
	}
	sort.Ints(counts)
	fmt.Println("consumed", len(keys), "keys", counts[0], "to", counts[len(counts)-1], "times")
	must("delete topic", conn.DeleteTopics(name))
}

func main() {
	tours := map[string]func(context.Context, string, string){
		"franz-go": franz, "kafka-go": kafkaGo,
		"sarama-4.1": saramaAt(sarama.V4_1_0_0), "sarama-2.1": saramaAt(sarama.V2_1_0_0), "sarama-1.1": saramaAt(sarama.V1_1_0_0),
	}
	for _, more := range []map[string]func(context.Context, string, string){transactionTours, securedTours} {
		for name, tour := range more {
			tours[name] = tour
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	tours[os.Args[1]](ctx, os.Args[2], os.Args[3])
}
