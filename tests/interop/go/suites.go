package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

var suites = map[string]func(*checks){
	"basic": basic, "transaction": transaction, "sql": sql, "request-reply": requestReply, "trace": trace, "acl": acl, "tls": tls,
	"pair-send": pairSend, "pair-receive": pairReceive,
}

var all = consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}

func basic(c *checks) {
	sending(c)
	pushing(c)
	retrying(c)
	pulling(c)
	offsets(c)
}

func sending(c *checks) {
	c.check("send-sync", func() {
		topic := c.topic("GoSync", 4)
		p := c.newProducer()
		queues := map[int]int64{}
		for i := 0; i < 8; i++ {
			r := value(p.SendSync(background, message(topic, "T", fmt.Sprint("m", i))))
			equal(primitive.SendOK, r.Status, "status")
			that(len(r.MsgID) > 0 && len(r.OffsetMsgID) == 32, "ids %s %s", r.MsgID, r.OffsetMsgID)
			equal(queues[r.MessageQueue.QueueId], r.QueueOffset, "queue offset")
			queues[r.MessageQueue.QueueId]++
		}
		equal(4, len(queues), "queues used")
		c.push(c.name("GSync"), topic, "*").awaitExactly(numbered("m", 0, 8))
	})

	c.check("send-async", func() {
		topic := c.topic("GoAsync", 4)
		p := c.newProducer()
		var done sync.WaitGroup
		var bad atomic.Int32
		for _, body := range numbered("a", 0, 100) {
			done.Add(1)
			must(p.SendAsync(background, func(_ context.Context, r *primitive.SendResult, err error) {
				if err != nil || r.Status != primitive.SendOK {
					bad.Add(1)
				}
				done.Done()
			}, message(topic, "", body)))
		}
		done.Wait()
		equal(int32(0), bad.Load(), "failures")
		c.push(c.name("GAsync"), topic, "*").awaitExactly(numbered("a", 0, 100))
	})

	c.check("send-one-way", func() {
		topic := c.topic("GoOneWay", 4)
		p := c.newProducer()
		for _, body := range numbered("o", 0, 20) {
			must(p.SendOneWay(background, message(topic, "", body)))
		}
		c.push(c.name("GOneWay"), topic, "*").awaitExactly(numbered("o", 0, 20))
	})

	c.check("send-batch", func() {
		topic := c.topic("GoBatch", 4)
		var batch []*primitive.Message
		for _, body := range numbered("b", 0, 32) {
			m := message(topic, "T"+body, body)
			m.WithKeys([]string{"key" + body})
			batch = append(batch, m)
		}
		r := value(c.newProducer().SendSync(background, batch...))
		equal(primitive.SendOK, r.Status, "status")
		equal(32, len(strings.Split(r.OffsetMsgID, ",")), "offset ids")
		for _, m := range c.readAll(topic, 32) {
			body := string(m.Body)
			equal([]string{"T" + body, "key" + body}, []string{m.GetTags(), m.GetKeys()}, "tag and key of "+body)
			equal("b"+strconv.FormatInt(m.QueueOffset, 10), body, "order")
		}
	})

	c.check("send-3mb", func() {
		topic := c.topic("Go3MB", 1)
		body := make([]byte, 3<<20)
		rand.New(rand.NewSource(1)).Read(body)
		equal(primitive.SendOK, value(c.newProducer().SendSync(background, primitive.NewMessage(topic, body))).Status, "status")
		that(bytes.Equal(body, c.readAll(topic, 1)[0].Body), "body differs")
	})

	c.check("send-compressed", func() {
		topic := c.topic("GoCompressed", 1)
		body := strings.Repeat("compress me, ", 10_000)
		value(c.newProducer().SendSync(background, message(topic, "", body)))
		m := c.readAll(topic, 1)[0]
		equal(body, string(m.Body), "body")
		that(int(m.StoreSize) < len(body)/10, "stored compressed: %d", m.StoreSize)
	})

	c.check("send-unicode", func() {
		topic, body, tag := c.topic("GoUnicode", 1), "Grüße, 你好, 🦀\x00\n", "Märkte🚀"
		m := message(topic, tag, body)
		m.WithKeys([]string{"ключ"})
		m.WithProperty("名前", "値 with blanks = & : ; , \" \\ 🦀")
		value(c.newProducer().SendSync(background, m))
		// Not by its tag: this client hashes tags as bytes, brokers hash UTF-16 units.
		box := c.push(c.name("GUnicode"), topic, "*")
		box.awaitExactly([]string{body})
		got := box.messages[0]
		equal([]string{tag, "ключ", "値 with blanks = & : ; , \" \\ 🦀"}, []string{got.GetTags(), got.GetKeys(), got.GetProperty("名前")}, "message")
	})

	c.check("send-refused", func() {
		topic := c.topic("GoRefused", 1)
		m := message(topic, "", "x")
		m.WithProperty("long", strings.Repeat("v", 40_000))
		_, err := c.newProducer().SendSync(background, m)
		that(err != nil, "40 kB of properties: not refused")
	})
}

func pushing(c *checks) {
	c.check("push-concurrently", func() {
		topic := c.topic("GoPush", 4)
		one, two := c.push(c.name("GGoPush1"), topic, "*"), c.push(c.name("GGoPush2"), topic, "*")
		c.sendAll(topic, numbered("m", 0, 200))
		one.awaitExactly(numbered("m", 0, 200))
		two.awaitExactly(numbered("m", 0, 200))
	})

	c.check("push-orderly", func() {
		topic := c.topic("GoOrderly", 4)
		var lock sync.Mutex
		seen := map[int][]int{}
		count := 0
		c.pushTo(c.name("GGoOrderly"), topic, all, func(_ context.Context, batch ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			lock.Lock()
			defer lock.Unlock()
			for _, m := range batch {
				n, _ := strconv.Atoi(string(m.Body))
				seen[m.Queue.QueueId] = append(seen[m.Queue.QueueId], n)
				count++
			}
			return consumer.ConsumeSuccess, nil
		}, consumer.WithConsumerOrder(true))
		p := c.newProducer(producer.WithQueueSelector(producer.NewHashQueueSelector()))
		for i := 0; i < 100; i++ {
			value(p.SendSync(background, message(topic, "", strconv.Itoa(i)).WithShardingKey(strconv.Itoa(i%7))))
		}
		await("100 messages", 60, func() bool { lock.Lock(); defer lock.Unlock(); return count >= 100 })
		for queue, list := range seen {
			for i := 1; i < len(list); i++ {
				that(list[i] > list[i-1], "order in queue %d: %v", queue, list)
			}
		}
	})

	c.check("push-broadcasting", func() {
		topic, group := c.topic("GoBroadcast", 4), c.name("GGoBroadcast")
		one := c.push(group, topic, "*", consumer.WithConsumerModel(consumer.BroadCasting))
		two := c.push(group, topic, "*", consumer.WithConsumerModel(consumer.BroadCasting))
		c.sendAll(topic, numbered("m", 0, 40))
		one.awaitExactly(numbered("m", 0, 40))
		two.awaitExactly(numbered("m", 0, 40))
	})

	c.check("tags", func() {
		topic := c.topic("GoTags", 1)
		p := c.newProducer()
		for i := 0; i < 5; i++ {
			for _, tag := range []string{"TagA", "TagB", "TagC", "Aa", "BB"} {
				value(p.SendSync(background, message(topic, tag, fmt.Sprint(tag, i))))
			}
		}
		c.push(c.name("GGoTags"), topic, "TagA || TagC").awaitExactly(append(numbered("TagA", 0, 5), numbered("TagC", 0, 5)...))
		// "Aa" and "BB" have one hash code: the broker lets both through, the client drops the wrong one.
		c.push(c.name("GGoHash"), topic, "Aa").awaitExactly(numbered("Aa", 0, 5))
	})
}

func retrying(c *checks) {
	failing := func(group, topic string, failures int32, options ...consumer.Option) *inbox {
		box := &inbox{}
		var attempts atomic.Int32
		box.consumer = c.pushTo(group, topic, all, func(ctx context.Context, batch ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			box.listen(ctx, batch...)
			if concurrently, ok := primitive.GetConcurrentlyCtx(ctx); ok {
				concurrently.DelayLevelWhenNextConsume = 1
			}
			if attempts.Add(1) <= failures {
				return consumer.ConsumeRetryLater, nil
			}
			return consumer.ConsumeSuccess, nil
		}, options...)
		return box
	}

	c.check("retry", func() {
		topic, group := c.topic("GoRetry", 1), c.name("GGoRetry")
		box := failing(group, topic, 2)
		m := message(topic, "T", "again")
		m.WithKeys([]string{"key"})
		value(c.newProducer().SendSync(background, m))
		await("third attempt", 90, func() bool { return len(box.bodies()) == 3 })
		for i, m := range box.messages {
			equal([]any{"again", topic, "T", "key", int32(i)}, []any{string(m.Body), m.Topic, m.GetTags(), m.GetKeys(), m.ReconsumeTimes}, fmt.Sprint("attempt ", i))
		}
	})

	c.check("dead-letter", func() {
		topic, group := c.topic("GoDead", 1), c.name("GGoDead")
		failing(group, topic, 99, consumer.WithMaxReconsumeTimes(1))
		value(c.newProducer().SendSync(background, message(topic, "T", "lost cause")))
		dead := "%DLQ%" + group
		a := value(admin.NewAdmin(admin.WithResolver(c.resolver())))
		defer a.Close()
		await("the dead-letter topic", 90, func() bool {
			list, err := a.FetchAllTopicList(background)
			must(err)
			for _, t := range list.TopicList {
				if t == dead {
					return true
				}
			}
			return false
		})
		c.createTopic(dead, 1) // dead-letter topics are write-only until an operator opens them
		equal("lost cause", string(c.readAll(dead, 1)[0].Body), "dead letter")
	})

	c.check("delay", func() {
		topic := c.topic("GoDelay", 1)
		box := c.push(c.name("GGoDelay"), topic, "*")
		p := c.newProducer()
		start := time.Now()
		for _, level := range []int{2, 1, 0} {
			value(p.SendSync(background, message(topic, "", fmt.Sprint("level", level)).WithDelayTimeLevel(level)))
		}
		box.awaitExactly(numbered("level", 0, 3))
		for _, m := range box.messages {
			waited := m.StoreTimestamp - start.UnixMilli()
			that(string(m.Body) == "level0" || waited >= 950, "%s due after %d ms", m.Body, waited)
		}
	})
}

func pulling(c *checks) {
	c.check("pull-from", func() {
		topic := c.topic("GoPull", 1)
		before := time.Now()
		c.sendAll(topic, numbered("p", 0, 50))
		c.readAll(topic, 50)
		pull := c.pull(c.name("GGoPull"))
		must(pull.Subscribe(topic, all))
		must(pull.Start())
		queues := value(pull.GetTopicRouteInfo(topic))
		equal(1, len(queues), "queues")
		r := value(pull.PullFrom(background, queues[0], 10, 5))
		equal([]int64{int64(primitive.PullFound), 15, 0, 50}, []int64{int64(r.Status), r.NextBeginOffset, r.MinOffset, r.MaxOffset}, "pull of five at ten")
		var bodies []string
		for _, m := range r.GetMessageExts() {
			bodies = append(bodies, string(m.Body))
		}
		equal(numbered("p", 10, 15), bodies, "bodies")
		equal(int64(0), value(pull.OffsetForTimestamp(queues[0], before.Add(-time.Minute).UnixMilli())), "offset for a time before all")
		equal(primitive.PullOffsetIllegal, value(pull.PullFrom(background, queues[0], 500, 5)).Status, "past the end")
	})

	c.check("pull-poll", func() {
		topic, group := c.topic("GoPoll", 4), c.name("GGoPoll")
		poll := func(bodies []string) {
			pull := c.pull(group)
			must(pull.Subscribe(topic, all))
			must(pull.Start())
			got := map[string]bool{}
			await(fmt.Sprintf("%d polled", len(bodies)), 60, func() bool {
				if r, err := pull.Poll(background, time.Second); err == nil {
					for _, m := range r.GetMsgList() {
						got[string(m.Body)] = true
					}
					pull.ACK(background, r, consumer.ConsumeSuccess)
				}
				for _, b := range bodies {
					if !got[b] {
						return false
					}
				}
				return true
			})
			c.opened[len(c.opened)-1]()
			c.opened = c.opened[:len(c.opened)-1]
		}
		c.sendAll(topic, numbered("m", 0, 40))
		poll(numbered("m", 0, 40))
		c.sendAll(topic, numbered("n", 0, 10))
		poll(numbered("n", 0, 10))
	})
}

// pull makes a pull consumer, to be started by the caller.
func (c *checks) pull(group string) rocketmq.PullConsumer {
	pull := value(rocketmq.NewPullConsumer(c.consumerOptions(group, nil)...))
	c.opened = append(c.opened, func() { pull.Shutdown() })
	return pull
}

func offsets(c *checks) {
	c.check("offsets-across-restart", func() {
		topic, group := c.topic("GoOffsets", 4), c.name("GGoOffsets")
		c.sendAll(topic, numbered("m", 0, 60))
		first := c.push(group, topic, "*")
		first.awaitExactly(numbered("m", 0, 60))
		// A listener that has returned is not yet an offset that is noted.
		await("offsets noted", 20, func() bool { return first.consumer.GetOffsetDiffMap()[topic] == 0 })
		first.stop()
		c.sendAll(topic, numbered("n", 0, 20))
		c.push(group, topic, "*").awaitExactly(numbered("n", 0, 20))
	})

	c.check("rebalance", func() {
		topic, group := c.topic("GoRebalance", 8), c.name("GGoRebalance")
		p := c.newProducer(producer.WithQueueSelector(producer.NewRoundRobinQueueSelector()))
		var everyone []*inbox
		round := 0
		var sent []string
		// A round of eight messages, one a queue, shows who owns what.
		settle := func(members []*inbox) {
			await(fmt.Sprintf("%d members share eight queues", len(members)), 100, func() bool {
				round++
				var bodies []string
				for _, body := range numbered(fmt.Sprintf("r%d-", round), 0, 8) {
					value(p.SendSync(background, message(topic, "", body)))
					bodies = append(bodies, body)
				}
				sent = append(sent, bodies...)
				await("round", 60, func() bool { return covered(everyone, bodies) })
				for _, m := range members {
					n := 0
					for _, body := range m.bodies() {
						if strings.HasPrefix(body, fmt.Sprintf("r%d-", round)) {
							n++
						}
					}
					if n != 8/len(members) {
						return false
					}
				}
				return true
			})
		}
		one := c.push(group, topic, "*")
		everyone = append(everyone, one)
		settle([]*inbox{one})
		two := c.push(group, topic, "*")
		everyone = append(everyone, two)
		settle([]*inbox{one, two})
		one.stop()
		settle([]*inbox{two})
		that(covered(everyone, sent), "a message was lost")
	})
}

func covered(boxes []*inbox, bodies []string) bool {
	got := map[string]bool{}
	for _, box := range boxes {
		for _, b := range box.bodies() {
			got[b] = true
		}
	}
	for _, b := range bodies {
		if !got[b] {
			return false
		}
	}
	return true
}

// plan decides by the message's property "plan": what the local transaction says, then what each check-back says.
type plan struct{ checks sync.Map }

func (p *plan) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	return p.state(m.GetProperty("plan"), 0)
}

func (p *plan) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	count, _ := p.checks.LoadOrStore(string(m.Body), new(atomic.Int32))
	return p.state(m.GetProperty("plan"), int(count.(*atomic.Int32).Add(1)))
}

func (p *plan) state(words string, step int) primitive.LocalTransactionState {
	list := strings.Split(words, ",")
	switch list[min(step, len(list)-1)] {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	}
	return primitive.UnkonwnState
}

func transaction(c *checks) {
	c.check("transaction", func() {
		topic := c.topic("GoTransaction", 1)
		box := c.push(c.name("GGoTransaction"), topic, "*")
		listener := &plan{}
		p := value(rocketmq.NewTransactionProducer(listener, c.producerOptions([]producer.Option{producer.WithGroupName(c.name("PGoTransaction"))})...))
		must(p.Start())
		c.opened = append(c.opened, func() { p.Shutdown() })
		for _, words := range []string{"rollback", "commit", "unknown,rollback", "unknown,commit", "unknown,unknown,commit"} {
			m := message(topic, "T", words)
			m.WithProperty("plan", words)
			equal(primitive.SendOK, value(p.SendMessageInTransaction(background, m)).Status, "status")
		}
		await("all settled", 150, func() bool {
			_, checked := listener.checks.Load("unknown,rollback")
			return checked && len(box.bodies()) >= 3
		})
		equal([]string{"commit", "unknown,commit", "unknown,unknown,commit"}, sorted(box.bodies()), "delivered")
	})
}

func sql(c *checks) {
	c.check("sql", func() {
		topic := c.topic("GoSql", 4)
		box := c.pushSelected(c.name("GGoSql"), topic, consumer.MessageSelector{Type: consumer.SQL92, Expression: "(TAGS in ('TagA', 'TagB')) and (a is not null and a between 0 and 3)"})
		p := c.newProducer()
		for i := 0; i < 12; i++ {
			m := message(topic, "Tag"+"ABC"[i%3:i%3+1], fmt.Sprint("m", i))
			m.WithProperty("a", strconv.Itoa(i/2))
			value(p.SendSync(background, m))
		}
		box.awaitExactly([]string{"m0", "m1", "m3", "m4", "m6", "m7"})
	})
}

func requestReply(c *checks) {
	c.check("request-reply", func() {
		topic := c.topic("GoRequest", 1)
		p, answers := c.newProducer(), c.newProducer(producer.WithGroupName(c.name("PGoReply")))
		// A reply finds its client once that has sent a heartbeat to the broker: repeat until then, as the client's own example waits.
		c.pushTo(c.name("GGoReply"), topic, all, func(_ context.Context, batch ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			for _, m := range batch {
				reply, err := consumer.CreateReplyMessage(m, nil) // it would lose a body
				if err == nil {
					reply.Body = []byte("re: " + string(m.Body))
					answers.SendSync(background, reply)
				}
			}
			return consumer.ConsumeSuccess, nil
		})
		await("a reply", 90, func() bool {
			reply, err := p.Request(background, 3*time.Second, message(topic, "", "one"))
			return err == nil && string(reply.Body) == "re: one"
		})
		equal("re: two", string(value(p.Request(background, 10*time.Second, message(topic, "", "two"))).Body), "reply")
	})
}

func trace(c *checks) {
	c.check("trace", func() {
		topic := c.topic("GoTrace", 1)
		config := &primitive.TraceConfig{Access: primitive.Local, Resolver: c.resolver()}
		records := c.push(c.name("GGoTraceReader"), "RMQ_SYS_TRACE_TOPIC", "*")
		box := c.push(c.name("GGoTrace"), topic, "*", consumer.WithTrace(config))
		id := value(c.newProducer(producer.WithTrace(config)).SendSync(background, message(topic, "T", "traced"))).MsgID
		box.awaitExactly([]string{"traced"})
		await("records of sending and consuming", 60, func() bool {
			kinds := map[string]bool{}
			for _, body := range records.bodies() {
				for _, record := range strings.Split(body, "\x02") {
					if strings.Contains(record, id) {
						kinds[strings.Split(record, "\x01")[0]] = true
					}
				}
			}
			return kinds["Pub"] && kinds["SubBefore"] && kinds["SubAfter"]
		})
	})
}

// acl wants a broker that runs with ../plain_acl.yml.
func acl(c *checks) {
	account := func(key, secret string) { c.credentials = primitive.Credentials{AccessKey: key, SecretKey: secret} }
	send := func(topic string) error {
		_, err := c.newProducer().SendSync(background, message(topic, "", c.name("go")))
		return err
	}
	const topic, readOnly = "InteropAclTopic", "InteropAclReadOnly"
	c.check("acl-admin", func() {
		account("InteropAdmin", "interop-admin-secret")
		c.createTopic(topic, 1)
		c.createTopic(readOnly, 1)
		must(send(readOnly))
	})
	c.check("acl-user-within-rights", func() {
		account("InteropUser", "interop-user-secret")
		box := c.push("InteropAclGroup", topic, "*")
		must(send(topic))
		box.awaitAll([]string{c.name("go")})
	})
	c.check("acl-user-beyond-rights", func() {
		account("InteropUser", "interop-user-secret")
		that(send(readOnly) != nil, "sent to a topic without PUB")
	})
	c.check("acl-wrong-secret", func() {
		account("InteropUser", "not-the-secret")
		that(send(topic) != nil, "sent with a wrong secret")
	})
	c.check("acl-no-keys", func() {
		account("", "")
		that(send(topic) != nil, "sent without keys")
	})
}

// tls checks the mode that the option `mode` names: permissive, enforcing or disabled.
func tls(c *checks) {
	mode := c.options["mode"]
	if mode == "" {
		mode = "permissive"
	}
	for _, with := range []bool{true, false} {
		works := mode == "permissive" || with == (mode == "enforcing")
		c.check(fmt.Sprintf("tls-%s-tls=%v-works=%v", mode, with, works), func() {
			c.tls = works == with // the way that works, to prepare
			topic := c.topic(fmt.Sprint("GoTls", with), 1)
			c.tls = with
			if works {
				c.sendAll(topic, numbered("m", 0, 20))
				c.push(c.name(fmt.Sprint("GGoTls", with)), topic, "*").awaitExactly(numbered("m", 0, 20))
			} else {
				_, err := c.newProducer().SendSync(background, message(topic, "", "x"))
				that(err != nil, "sent all the same")
			}
		})
	}
}
