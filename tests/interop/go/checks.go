// Command interop runs suites of checks on the stock Go client against a cluster: `interop NAMESRV SUITE... [name=value...]`.
// This file: naming and running checks, clients of the cluster under test. suites.go: the checks.
package main

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

var background = context.Background()

// checks runs named checks: a line each; what a check opened is closed at its end.
type checks struct {
	namesrv        string
	options        map[string]string
	run            string // a suffix that no other run uses
	credentials    primitive.Credentials
	tls            bool
	passed, failed int
	opened         []func()
	broker         string
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: interop NAMESRV SUITE... [name=value...]")
		os.Exit(2)
	}
	rlog.SetLogLevel("fatal")
	c := &checks{namesrv: os.Args[1], options: map[string]string{}, run: strconv.FormatInt(time.Now().UnixMilli()%10_000_000_000, 36)}
	var chosen []func(*checks)
	for _, arg := range os.Args[2:] {
		if name, value, option := strings.Cut(arg, "="); option {
			c.options[name] = value
		} else if suite, known := suites[arg]; known {
			chosen = append(chosen, suite)
		} else {
			fmt.Fprintln(os.Stderr, "no such suite: "+arg)
			os.Exit(2)
		}
	}
	for _, suite := range chosen {
		suite(c)
	}
	fmt.Printf("%d passed, %d failed\n", c.passed, c.failed)
	if c.failed > 0 || c.passed == 0 {
		os.Exit(1)
	}
}

func (c *checks) check(name string, body func()) {
	if only, set := c.options["only"]; set && !regexp.MustCompile("^(?:"+only+")$").MatchString(name) {
		return
	}
	start := time.Now()
	line := "ok " + name
	func() {
		defer func() {
			if why := recover(); why != nil {
				line = "FAILED " + name + ": " + strings.Join(strings.Fields(fmt.Sprint(why)), " ")
			}
		}()
		body()
	}()
	if strings.HasPrefix(line, "ok ") {
		c.passed++
	} else {
		c.failed++
	}
	for len(c.opened) > 0 {
		last := len(c.opened) - 1
		closeIt := c.opened[last]
		c.opened = c.opened[:last]
		closeIt()
	}
	fmt.Printf("%s (%.2f s)\n", line, time.Since(start).Seconds())
}

// ---- assertions; a failed one ends the running check

func that(condition bool, what string, args ...any) {
	if !condition {
		panic(fmt.Sprintf(what, args...))
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func value[T any](v T, err error) T {
	must(err)
	return v
}

func equal(want, got any, what string) {
	that(reflect.DeepEqual(want, got), "%s: expected %.300v, got %.300v", what, want, got)
}

func await(what string, seconds int, condition func() bool) {
	for end := time.Now().Add(time.Duration(seconds) * time.Second); !condition(); time.Sleep(20 * time.Millisecond) {
		that(time.Now().Before(end), "not within %d s: %s", seconds, what)
	}
}

// ---- names, messages

func (c *checks) name(base string) string { return base + "-" + c.run }

func message(topic, tag, body string) *primitive.Message {
	m := primitive.NewMessage(topic, []byte(body))
	if tag != "" {
		m.WithTag(tag)
	}
	return m
}

func numbered(prefix string, from, to int) []string {
	var list []string
	for i := from; i < to; i++ {
		list = append(list, prefix+strconv.Itoa(i))
	}
	return list
}

func sorted(list []string) []string {
	out := append([]string{}, list...)
	sort.Strings(out)
	return out
}

// ---- clients

func (c *checks) resolver() primitive.NsResolver {
	return primitive.NewPassthroughResolver(strings.Split(c.namesrv, ";"))
}

// newProducer starts a producer; it is closed at the end of the check.
func (c *checks) newProducer(options ...producer.Option) rocketmq.Producer {
	p := value(rocketmq.NewProducer(c.producerOptions(options)...))
	must(p.Start())
	c.opened = append(c.opened, func() { p.Shutdown() })
	return p
}

func (c *checks) producerOptions(options []producer.Option) []producer.Option {
	all := []producer.Option{
		producer.WithGroupName(c.name("PGo")), producer.WithInstanceName(c.unique("p")), producer.WithNsResolver(c.resolver()),
		producer.WithSendMsgTimeout(10 * time.Second), producer.WithTls(c.tls), producer.WithRetry(0), producer.WithCredentials(c.credentials),
	}
	return append(all, options...)
}

func (c *checks) consumerOptions(group string, options []consumer.Option) []consumer.Option {
	all := []consumer.Option{
		consumer.WithGroupName(group), consumer.WithInstance(c.unique("c")), consumer.WithNsResolver(c.resolver()),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), consumer.WithTls(c.tls), consumer.WithCredentials(c.credentials),
	}
	return append(all, options...)
}

var instances int

func (c *checks) unique(base string) string {
	instances++
	return fmt.Sprintf("%s%d-%s", base, instances, c.run)
}

// sendAll sends bodies one after the other.
func (c *checks) sendAll(topic string, bodies []string) {
	p := c.newProducer()
	for _, body := range bodies {
		equal(primitive.SendOK, value(p.SendSync(background, message(topic, "", body))).Status, "status of "+body)
	}
}

// topic creates a topic under a fresh name on the broker.
func (c *checks) topic(base string, queues int) string { return c.createTopic(c.name(base), queues) }

func (c *checks) createTopic(topic string, queues int) string {
	a := value(admin.NewAdmin(admin.WithResolver(c.resolver()), admin.WithTls(c.tls), admin.WithCredentials(c.credentials)))
	defer a.Close()
	if c.broker == "" { // the client tells no broker's address, but an offset id holds it
		id := value(c.newProducer().SendSync(background, message(c.name("GoProbe"), "", "probe"))).OffsetMsgID
		parsed := value(primitive.UnmarshalMsgID([]byte(id)))
		c.broker = fmt.Sprintf("%s:%d", parsed.Addr, parsed.Port)
	}
	must(a.CreateTopic(background, admin.WithTopicCreate(topic), admin.WithBrokerAddrCreate(c.broker), admin.WithReadQueueNums(queues), admin.WithWriteQueueNums(queues)))
	await("route of "+topic, 30, func() bool {
		found, err := a.FetchPublishMessageQueues(background, topic)
		return err == nil && len(found) == queues
	})
	return topic
}

// inbox keeps what a consumer gets.
type inbox struct {
	sync.Mutex
	messages []*primitive.MessageExt
	consumer rocketmq.PushConsumer
	stopped  bool
}

func (i *inbox) listen(_ context.Context, batch ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	i.Lock()
	defer i.Unlock()
	i.messages = append(i.messages, batch...)
	return consumer.ConsumeSuccess, nil
}

func (i *inbox) bodies() []string {
	i.Lock()
	defer i.Unlock()
	var list []string
	for _, m := range i.messages {
		list = append(list, string(m.Body))
	}
	return list
}

func (i *inbox) stop() {
	if !i.stopped {
		i.stopped = true
		i.consumer.Shutdown()
	}
}

// awaitExactly demands each of the bodies once and nothing else.
func (i *inbox) awaitExactly(bodies []string) {
	i.awaitAll(bodies)
	equal(sorted(bodies), sorted(i.bodies()), "received")
}

func (i *inbox) awaitAll(bodies []string) {
	await(fmt.Sprintf("%d messages", len(bodies)), 60, func() bool {
		got := map[string]bool{}
		for _, b := range i.bodies() {
			got[b] = true
		}
		for _, b := range bodies {
			if !got[b] {
				return false
			}
		}
		return true
	})
}

type listener = func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error)

// push starts a push consumer whose messages land in the returned inbox.
func (c *checks) push(group, topic, tags string, options ...consumer.Option) *inbox {
	return c.pushSelected(group, topic, consumer.MessageSelector{Type: consumer.TAG, Expression: tags}, options...)
}

func (c *checks) pushSelected(group, topic string, selector consumer.MessageSelector, options ...consumer.Option) *inbox {
	box := &inbox{}
	box.consumer = c.pushTo(group, topic, selector, box.listen, options...)
	c.opened[len(c.opened)-1] = box.stop
	return box
}

func (c *checks) pushTo(group, topic string, selector consumer.MessageSelector, listen listener, options ...consumer.Option) rocketmq.PushConsumer {
	push := value(rocketmq.NewPushConsumer(c.consumerOptions(group, options)...))
	must(push.Subscribe(topic, selector, listen))
	must(push.Start())
	c.opened = append(c.opened, func() { push.Shutdown() })
	return push
}

// readAll returns a topic's messages once `count` of them are there.
func (c *checks) readAll(topic string, count int) []*primitive.MessageExt {
	box := c.push(c.unique("GRead"), topic, "*")
	defer box.stop()
	await(fmt.Sprintf("%d messages in %s", count, topic), 40, func() bool { return len(box.bodies()) >= count })
	return box.messages
}
