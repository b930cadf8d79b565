package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
	kafkago "github.com/segmentio/kafka-go"
	kafkagosasl "github.com/segmentio/kafka-go/sasl"
	kafkagoplain "github.com/segmentio/kafka-go/sasl/plain"
	kafkagoscram "github.com/segmentio/kafka-go/sasl/scram"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	xdg "github.com/xdg-go/scram"
)

// security is the variable SECURITY of the environment: how to connect, and how much to produce.
type security struct {
	TLS                           bool
	CA, Certificate, Key          string // paths of PEM files
	Mechanism, Username, Password string
	Token                         string // of OAUTHBEARER
	Delegated                     bool   // whether Username and Password are of a delegation token
	Count, PauseMs                int
}

func given() security {
	var found security
	must("SECURITY", json.Unmarshal([]byte(os.Getenv("SECURITY")), &found))
	return found
}

func (s security) config() *tls.Config {
	pem, err := os.ReadFile(s.CA)
	must("CA", err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	config := &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"}
	if s.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(s.Certificate, s.Key)
		must("certificate", err)
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

// send calls one for each number, with pauses.
func (s security) send(one func(string)) {
	for i := 0; i < s.Count; i++ {
		one(fmt.Sprint(i))
		time.Sleep(time.Duration(s.PauseMs) * time.Millisecond)
	}
}

// read calls next until each number came, and prints how many records it took.
func (s security) read(next func() []string) {
	seen, total := map[string]bool{}, 0
	for len(seen) < s.Count {
		for _, value := range next() {
			seen[value] = true
			total++
		}
	}
	fmt.Println("consumed", len(seen), "in", total, "records")
}

func securedFranz(ctx context.Context, seed, name string) {
	s := given()
	options := []kgo.Opt{kgo.SeedBrokers(seed), kgo.AllowAutoTopicCreation()}
	if s.TLS {
		options = append(options, kgo.DialTLSConfig(s.config()))
	}
	var mechanism sasl.Mechanism
	key := scram.Auth{User: s.Username, Pass: s.Password, IsToken: s.Delegated}
	switch s.Mechanism {
	case "PLAIN":
		mechanism = plain.Auth{User: s.Username, Pass: s.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		mechanism = key.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		mechanism = key.AsSha512Mechanism()
	case "OAUTHBEARER":
		mechanism = oauth.Auth{Token: s.Token}.AsMechanism()
	}
	if mechanism != nil {
		options = append(options, kgo.SASL(mechanism))
	}
	producer, err := kgo.NewClient(append(options, kgo.DefaultProduceTopic(name), kgo.UnknownTopicRetries(-1))...)
	must("producer", err)
	must("ping", producer.Ping(ctx))
	s.send(func(value string) { must("produce", producer.ProduceSync(ctx, kgo.StringRecord(value)).FirstErr()) })
	producer.Close()
	consumer, err := kgo.NewClient(append(options, kgo.ConsumeTopics(name), kgo.ConsumerGroup(name),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	must("consumer", err)
	s.read(func() (values []string) {
		fetches := consumer.PollFetches(ctx)
		must("fetch", fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)) })
		return values
	})
	consumer.Close()
}

// scramOfXdg is the client of SCRAM that sarama lets its users bring.
type scramOfXdg struct {
	hash xdg.HashGeneratorFcn
	*xdg.ClientConversation
}

func (c *scramOfXdg) Begin(user, password, authzid string) error {
	client, err := c.hash.NewClient(user, password, authzid)
	if err == nil {
		c.ClientConversation = client.NewConversation()
	}
	return err
}

type fixedToken string

func (t fixedToken) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(t)}, nil
}

func securedSarama(ctx context.Context, seed, name string) {
	s := given()
	config := sarama.NewConfig()
	config.Version = sarama.V4_1_0_0
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	config.Metadata.Retry.Max = 20
	if s.TLS {
		config.Net.TLS.Enable, config.Net.TLS.Config = true, s.config()
	}
	if s.Mechanism != "" {
		config.Net.SASL.Enable = true
		config.Net.SASL.Version = sarama.SASLHandshakeV1
		config.Net.SASL.Mechanism = sarama.SASLMechanism(s.Mechanism)
		config.Net.SASL.User, config.Net.SASL.Password = s.Username, s.Password
		config.Net.SASL.TokenProvider = fixedToken(s.Token)
		hash := xdg.SHA256
		if s.Mechanism == "SCRAM-SHA-512" {
			hash = xdg.SHA512
		}
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramOfXdg{hash: hash} }
	}
	producer, err := sarama.NewSyncProducer([]string{seed}, config)
	must("producer", err)
	s.send(func(value string) {
		_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: name, Value: sarama.StringEncoder(value)})
		must("send", err)
	})
	must("close", producer.Close())
	consumer, err := sarama.NewConsumer([]string{seed}, config)
	must("consumer", err)
	part, err := consumer.ConsumePartition(name, 0, sarama.OffsetOldest)
	must("partition", err)
	s.read(func() []string {
		select {
		case message := <-part.Messages():
			return []string{string(message.Value)}
		case <-ctx.Done():
			must("consume", ctx.Err())
			return nil
		}
	})
	must("close", part.Close())
	must("close", consumer.Close())
}

func securedKafkaGo(ctx context.Context, seed, name string) {
	s := given()
	var mechanism kafkagosasl.Mechanism
	var err error
	switch s.Mechanism {
	case "PLAIN":
		mechanism = kafkagoplain.Mechanism{Username: s.Username, Password: s.Password}
	case "SCRAM-SHA-256":
		mechanism, err = kafkagoscram.Mechanism(kafkagoscram.SHA256, s.Username, s.Password)
	case "SCRAM-SHA-512":
		mechanism, err = kafkagoscram.Mechanism(kafkagoscram.SHA512, s.Username, s.Password)
	}
	must("mechanism", err)
	transport, dialer := &kafkago.Transport{SASL: mechanism}, &kafkago.Dialer{SASLMechanism: mechanism, Timeout: 10 * time.Second}
	if s.TLS {
		transport.TLS, dialer.TLS = s.config(), s.config()
	}
	writer := &kafkago.Writer{Addr: kafkago.TCP(seed), Topic: name, RequiredAcks: kafkago.RequireAll, Transport: transport,
		BatchTimeout: time.Millisecond, AllowAutoTopicCreation: true}
	s.send(func(value string) { must("write", writer.WriteMessages(ctx, kafkago.Message{Value: []byte(value)})) })
	must("close", writer.Close())
	reader := kafkago.NewReader(kafkago.ReaderConfig{Brokers: []string{seed}, Topic: name, Dialer: dialer,
		MaxWait: 200 * time.Millisecond})
	s.read(func() []string {
		message, err := reader.ReadMessage(ctx)
		must("read", err)
		return []string{string(message.Value)}
	})
	must("close", reader.Close())
}

var securedTours = map[string]func(context.Context, string, string){
	"secured franz-go": securedFranz, "secured sarama": securedSarama, "secured kafka-go": securedKafkaGo,
}
