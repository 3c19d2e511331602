package eventlog

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/try"
)

// read reads a whole log, going on after bad lines.
func read(log io.Reader, name, format string) (events []Event, wrong []string) {
	r := &reader{Log: &Log{Source: log, Name: name, Format: format}}
	for {
		e, err := r.next()
		if err == io.EOF {
			return events, wrong
		}
		if err == nil {
			events = append(events, e)
			continue
		}
		wrong = append(wrong, err.Error())
		if bad := (*Error)(nil); !errors.As(err, &bad) || bad.Line == 0 || r.parse == nil {
			return events, wrong
		}
	}
}

func at(us int64, event, feature string) Event { return Event{time.UnixMicro(us), event, feature} }

const header = "time_us,event,feature\n"

func TestCSV(t *testing.T) {
	for name, row := range map[string]struct {
		log  string
		want []Event
	}{
		"plain":            {header + "1,a,b\n2,c,d\n", []Event{at(1, "a", "b"), at(2, "c", "d")}},
		"no last line end": {header + "1,a,b", []Event{at(1, "a", "b")}},
		"header only":      {header, nil},
		"before 1970":      {header + "-5000000,a,b\n", []Event{at(-5_000_000, "a", "b")}},
		"columns":          {"x,feature, time_us ,event\n,b, 1 ,a\n9,d,2,c\n", []Event{at(1, "a", "b"), at(2, "c", "d")}},
		"windows":          {"\xef\xbb\xbftime_us,event,feature\r\n1,a,b\r\n", []Event{at(1, "a", "b")}},
		"empty lines":      {"\n\n" + header + "\n1,a,b\n\r\n\n", []Event{at(1, "a", "b")}},
		"quotes":           {`"time_us","event","feature"` + "\n" + `"1","a,""b""",c` + "\n" + `2,"","x"` + "\n" + `3,d,"e"`, []Event{at(1, `a,"b"`, "c"), at(3, "d", "e")}},
		"any bytes":        {header + "1,\x00\xff, b \n", []Event{at(1, "\x00\xff", " b ")}},
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := read(strings.NewReader(row.log), "log.csv", Auto)
			require.Equal(t, row.want, got)
			got, _ = read(iotest.OneByteReader(strings.NewReader(row.log)), "log.csv", CSV)
			require.Equal(t, row.want, got)
		})
	}
}

func TestBadCSVLines(t *testing.T) {
	for line, want := range map[string]string{
		"x,a,b":                          `time_us "x" is not a whole number, want microseconds since 1970`,
		"1.5,a,b":                        `time_us "1.5" is not a whole number, want microseconds since 1970`,
		" ,a,b":                          `time_us "" is not a whole number, want microseconds since 1970`,
		"99999999999999999999,a,b":       `time_us "99999999999999999999" is out of range, want microseconds since 1970`,
		"1739333938326432000,a,b":        `time_us "1739333938326432000", in microseconds since 1970: year 57087 is out of range, want 1700 to 2249`,
		"-8520336000000001,a,b":          `time_us "-8520336000000001", in microseconds since 1970: year 1699 is out of range, want 1700 to 2249`,
		"8835998400000000,a,b":           `time_us "8835998400000000", in microseconds since 1970: year 2250 is out of range, want 1700 to 2249`,
		"1,a":                            "2 fields, want 3 as in the header",
		"1":                              "1 fields, want 3 as in the header",
		"1,a,b,c":                        "4 fields, want 3 as in the header",
		",a,b":                           "column time_us is empty, want a value",
		"1,,b":                           "column event is empty, want a value",
		"1,a,":                           "column feature is empty, want a value",
		`1,a,""`:                         "column feature is empty, want a value",
		`1,"a,b`:                         `byte 7: extraneous or missing " in quoted-field`,
		`1,"a"b,c`:                       `byte 5: extraneous or missing " in quoted-field`,
		`1,a"b,c`:                        `byte 4: bare " in non-quoted-field`,
		strings.Repeat("z", 1<<20):       "the line is longer than 1 MiB, want less",
		strings.Repeat("z", 5<<20):       "the line is longer than 1 MiB, want less",
		strings.Repeat("u", 60) + ",a,b": `time_us "` + strings.Repeat("u", 40) + `"... is not a whole number, want microseconds since 1970`,
	} {
		events, wrong := read(strings.NewReader(header+"1,a,b\n"+line+"\n2,c,d\n"), "log.csv", Auto)
		require.Equal(t, []string{"log.csv:3: " + want}, wrong)
		require.Equal(t, []Event{at(1, "a", "b"), at(2, "c", "d")}, events, "reading goes on")
	}
}

func TestLongestLine(t *testing.T) {
	feature := strings.Repeat("f", maxLine-len("1,a,\n"))
	events, wrong := read(strings.NewReader(header+"1,a,"+feature+"\n2,c,d\n"), "log.csv", Auto)
	require.Empty(t, wrong)
	require.Equal(t, []Event{at(1, "a", feature), at(2, "c", "d")}, events)
}

func TestBadHeaders(t *testing.T) {
	for log, want := range map[string]string{
		"time_us,event\n1,a\n":            "log:1: header: column feature is missing, want time_us, event, feature",
		"\n\nfeature,time_us\n":           "log:3: header: column event is missing, want time_us, event, feature",
		"time_us,event,feature,event\n":   "log:1: header: column event in fields 2 and 4, want it once",
		"":                                "log: the log is empty, want at least a header with the columns time_us, event and feature",
		"\n\n":                            "log: the log is empty, want at least a header with the columns time_us, event and feature",
		"hello\n":                         "log:1: the line is neither a CSV header with the columns time_us, event and feature, nor the Common Log Format; --format names the format",
		strings.Repeat("z", 2<<20) + "\n": "log: after line 1: the line is longer than 1 MiB, want less",
	} {
		events, wrong := read(strings.NewReader(log), "log", Auto)
		require.Equal(t, []string{want}, wrong)
		require.Empty(t, events)
	}
	_, wrong := read(strings.NewReader("1,a,b\n"), "log", CSV)
	require.Equal(t, []string{"log:1: header: column time_us is missing, want time_us, event, feature"}, wrong)
	_, wrong = read(strings.NewReader("\"time_us\n"), "log", CSV)
	require.Equal(t, []string{`log:1: header: byte 9: extraneous or missing " in quoted-field`}, wrong)
}

func TestCLF(t *testing.T) {
	const stamp = 971211336_000_000 // 10/Oct/2000:13:55:36 -0700, as the format's own example has it
	for line, want := range map[string]Event{
		`127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /a.gif HTTP/1.0" 200 2326`:                     at(stamp, "GET", "127.0.0.1"),
		`2001:db8::1 - - [10/Oct/2000:20:55:36 +0000] "POST /x HTTP/1.1" 503 - "http://r/" "Mozilla \"5\""`: at(stamp, "POST", "2001:db8::1"),
		`h - - [10/Oct/2000:20:55:36 +0000] "GET /\"quoted\" HTTP/1.1" 200 1 0.003 extra`:                   at(stamp, "GET", "h"),
		`h - - [10/Oct/2000:20:55:36 +0000] "-" 408 -`:                                                      at(stamp, "-", "h"),
		`h - - [10/Oct/2000:20:55:36 +0000] "" 400 0`:                                                       at(stamp, "-", "h"),
		`h - - [10/Oct/2000:20:55:36 +0000] "\x16\x03\x01 \x02" 400 0`:                                      at(stamp, "-", "h"),
		`h - - [10/Oct/2000:20:55:36 +0000] "SSH-2.0-Go" 400 0`:                                             at(stamp, "-", "h"),
		`h - - [10/Oct/2000:20:55:36 +0000] "M-SEARCH * HTTP/1.1" 400 0`:                                    at(stamp, "M-SEARCH", "h"),
	} {
		want.At = want.At.UTC()
		for _, format := range []string{Auto, CLF} {
			events, wrong := read(strings.NewReader("\n"+line+"\n"), "log", format)
			require.Empty(t, wrong, line)
			require.Equal(t, []Event{want}, events, line)
		}
	}
	events, wrong := read(strings.NewReader(""), "log", CLF)
	require.Empty(t, events)
	require.Empty(t, wrong, "a log that was just rotated is no error")
}

func TestBadCLFLines(t *testing.T) {
	const good = `h - - [10/Oct/2000:20:55:36 +0000] "GET / HTTP/1.1" 200 1`
	for line, want := range map[string]string{
		"hello": `no time in brackets, want host ident user [time] "request" status bytes`,
		`h - [10/Oct/2000:20:55:36 +0000] "GET / HTTP/1.1" 200 1`:          `"h -" before the time, want host ident user`,
		`v:80 h - - [10/Oct/2000:20:55:36 +0000] "GET / HTTP/1.1" 200 1`:   `"v:80 h - -" before the time, want host ident user`,
		` - - [10/Oct/2000:20:55:36 +0000] "GET / HTTP/1.1" 200 1`:         `" - -" before the time, want host ident user`,
		`h - - [10/Oct/2000:20:55:36 +0000] GET / HTTP/1.1 200 1`:          "no request in quotes after the time, want [time] \"request\" status bytes",
		`h - - [10/Okt/2000:20:55:36 +0000] "GET / HTTP/1.1" 200 1`:        `time "10/Okt/2000:20:55:36 +0000", want it like 02/Jan/2006:15:04:05 -0700`,
		`h - - [30/Feb/2000:20:55:36 +0000] "GET / HTTP/1.1" 200 1`:        `time "30/Feb/2000:20:55:36 +0000", want it like 02/Jan/2006:15:04:05 -0700`,
		`h - - [10/Oct/1600:20:55:36 +0000] "GET / HTTP/1.1" 200 1`:        `time "10/Oct/1600:20:55:36 +0000": year 1600 is out of range, want 1700 to 2249`,
		`h - - [10/Oct/2000:20:55:36 +0000] "GET / HTTP/1.1`:               "the request's quotes do not end, want \"request\" status bytes",
		`h - - [10/Oct/2000:20:55:36 +0000] "GET / HTTP/1.1"`:              "the status is missing, want \"request\" status bytes",
		`h - - [10/Oct/2000:20:55:36 +0000] "GET / HTTP/1.1" 200`:          "the size is missing, want \"request\" status bytes",
		`h - - [10/Oct/2000:20:55:36 +0000] "GET / HTTP/1.1" OK 1`:         `status "OK", want a number or -`,
		`h - - [10/Oct/2000:20:55:36 +0000] "GET / HTTP/1.1" 200 1k "" ""`: `size "1k", want a number or -`,
	} {
		events, wrong := read(strings.NewReader(good+"\n"+line+"\n"+good+"\n"), "log", Auto)
		require.Equal(t, []string{"log:2: " + want}, wrong)
		require.Len(t, events, 2, "reading goes on")
		require.Equal(t, events[0], events[1], "a time that is wrong is not remembered")
	}
}

func zipped(t *testing.T, text string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	try.To(w.Write([]byte(text)))(t)
	require.NoError(t, w.Close())
	return b.Bytes()
}

func TestGzip(t *testing.T) {
	want := []Event{at(1, "a", "b"), at(2, "c", "d")}
	first, second := zipped(t, header+"1,a,b\n"), zipped(t, "2,c,d\n")
	for _, name := range []string{"log.csv.gz", "log.csv", "standard input"} {
		events, wrong := read(bytes.NewReader(append(first[:len(first):len(first)], second...)), name, Auto)
		require.Empty(t, wrong)
		require.Equal(t, want, events)
	}
	events, wrong := read(bytes.NewReader(first[:len(first)-3]), "log.gz", Auto)
	require.Equal(t, []string{"log.gz: after line 2: decompressing: unexpected EOF"}, wrong)
	require.Equal(t, want[:1], events, "what was read before stands")

	first[len(first)-5]++ // in the check sum
	_, wrong = read(bytes.NewReader(first), "log.gz", Auto)
	require.Equal(t, []string{"log.gz: after line 2: decompressing: gzip: invalid checksum"}, wrong)

	_, wrong = read(strings.NewReader(header), "log.gz", Auto)
	require.Equal(t, []string{"log.gz: the name ends in .gz, but the content is not compressed by gzip"}, wrong)
	_, wrong = read(strings.NewReader("\x1f\x8b\x00"), "log", Auto)
	require.Equal(t, []string{"log: decompressing: unexpected EOF"}, wrong)
}

// Events read before an error are handed out first.
func TestSourceThatFails(t *testing.T) {
	log := &Log{Source: iotest.TimeoutReader(iotest.HalfReader(strings.NewReader(header + strings.Repeat("1,a,b\n", 20_000)))), Name: "log", Format: Auto}
	n := 0
	err := log.Each(t.Context(), &Seen{}, func(*Event) error { n++; return nil })
	require.Greater(t, n, 1000)
	require.ErrorIs(t, err, iotest.ErrTimeout)
}

// waits is true only where a call of next might block.
func TestWaits(t *testing.T) {
	in, out := io.Pipe()
	r := &reader{Log: &Log{Source: in, Name: "log", Format: Auto}}
	require.True(t, r.waits())
	go func() {
		_, _ = out.Write([]byte(header + "1,a,b\n2,c,d\n3,"))
		_, _ = out.Write([]byte("e,f"))
		out.Close()
	}()
	for i, want := range []bool{false, true, true} {
		try.To(r.next())(t)
		require.Equal(t, want, r.waits(), "after event %d", i+1)
	}
	_, err := r.next()
	require.Equal(t, io.EOF, err)
}
