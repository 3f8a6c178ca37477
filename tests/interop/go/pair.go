package main

import (
	"fmt"
	"strconv"
	"strings"
)

// One end of a pair: what one client sends (pair-send) every other one receives whole (pair-receive). Option topic.

const pairCount = 20

func pairTopic(c *checks) string {
	that(c.options["topic"] != "", "the option topic is missing")
	return c.options["topic"]
}

// pairBody returns a long text, and so a compressed one, for every fifth message.
func pairBody(n int) string {
	if n%5 == 0 {
		return strings.Repeat(fmt.Sprintf("press %d, ", n), 2_000)
	}
	return fmt.Sprintf("Grüße, 你好, 🦀 %d", n)
}

func pairSend(c *checks) {
	c.check("pair-send", func() {
		p := c.newProducer()
		for n := range pairCount {
			m := message(pairTopic(c), fmt.Sprint("T", n%3), pairBody(n))
			m.WithKeys([]string{fmt.Sprint("key-", n), "all"})
			m.WithProperty("n", strconv.Itoa(n))
			m.WithProperty("名前", fmt.Sprint("値 & = ", n))
			value(p.SendSync(background, m))
		}
	})
}

func pairReceive(c *checks) {
	c.check("pair-receive", func() {
		everything, some := c.push(c.name("GPairAll"), pairTopic(c), "*"), c.push(c.name("GPairSome"), pairTopic(c), "T1 || T2")
		var bodies, tagged []string
		for n := range pairCount {
			bodies = append(bodies, pairBody(n))
			if n%3 != 0 {
				tagged = append(tagged, pairBody(n))
			}
		}
		everything.awaitExactly(bodies)
		some.awaitExactly(tagged)
		for _, m := range everything.messages {
			n := value(strconv.Atoi(m.GetProperty("n")))
			want := []string{pairBody(n), fmt.Sprint("T", n%3), fmt.Sprintf("key-%d all", n), fmt.Sprint("値 & = ", n)}
			equal(want, []string{string(m.Body), m.GetTags(), m.GetKeys(), m.GetProperty("名前")}, fmt.Sprint("message ", n))
		}
	})
}
