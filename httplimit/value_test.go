package httplimit_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// secret stands in every request of the tables below with an error, and in no
// error.
const secret = "xyzzy"

func newRequest(method, query, contentType, body string) *http.Request {
	r := &http.Request{
		Method:        method,
		URL:           &url.URL{Path: "/", RawQuery: query},
		Host:          "shop.example",
		Header:        http.Header{},
		Body:          io.NopCloser(strings.NewReader(body)),
		ContentLength: -1,
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	return r
}

// requireValue holds v, of r, to want, or to an error of a source with status and reason.
func requireValue(t *testing.T, v httplimit.Value, source string, r *http.Request, want string, status int, reason string) {
	got, err := v(r)
	if status == 0 {
		require.NoError(t, err)
		require.Equal(t, want, got)
		return
	}
	var e *httplimit.ValueError
	require.ErrorAs(t, err, &e)
	require.Empty(t, got)
	require.Equal(t, status, e.Status)
	require.EqualError(t, err, "httplimit: "+source+": "+reason)
}

// The lines of a header may have two readings.
func TestValuesOfHeaders(t *testing.T) {
	const differ = "two different values"
	basic := func(s string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(s)) }
	for _, of := range []struct {
		v           httplimit.Value
		key, source string
		texts       map[string][]string // with bars between lines, by the text of v
	}{
		{httplimit.Header("x-tOKEN"), "X-Token", `header "X-Token"`, map[string][]string{
			"": {"absent", ""}, "a": {"a", "a|a"}, "a, b": {"a, b"}, " a ": {" a "},
			differ: {"a|" + secret, "a|a|" + secret, "|" + secret, secret + "|"},
		}},
		{httplimit.Header("host"), "X-Token", "", map[string][]string{"shop.example": {"absent"}}}, // net/http keeps it elsewhere
		{httplimit.Cookie("sid"), "Cookie", `cookie "sid"`, map[string][]string{
			"": {"absent", "a=1", "xsid=1; sid2=2", "sid=", "sid", "SID=1",
				"sid=\x7f" + secret,                  // which net/http skips
				"sid=1" + strings.Repeat(";", 3000)}, // more than net/http reads
			"1": {"sid=1", "a=0; sid=1; b=2", "a=0|sid=1", `sid="1"`, "a=0;\t sid =1", "sid=1; sid=1", `sid=1; sid="1"`,
				"sid=1; sid=\"\\" + secret}, // net/http skips the second
			"a=b":  {"sid=a=b"},
			differ: {"sid=1; sid=" + secret, "sid=1|sid=" + secret, "sid; sid=" + secret},
		}},
		{httplimit.Cookie("a b"), "Cookie", "", map[string][]string{"": {"a b=1; =2"}}}, // no cookie has the name
		{httplimit.BasicUser(), "Authorization", `header "Authorization"`, map[string][]string{
			"": {"absent", basic(":" + secret), "Bearer " + secret, "Basic ***", basic("ann")},
			"ann": {basic("ann:" + secret), basic("ann:"), basic("ann:b:c"), "bASIC" + basic("ann:b")[5:],
				basic("ann:b") + "|" + basic("ann:b")},
			differ: {basic("ann:b") + "|" + basic(secret+":b"), basic("ann:b") + "|" + basic("ann:"+secret)},
		}},
	} {
		for want, texts := range of.texts {
			for _, text := range texts {
				r, status := newRequest("GET", "", "", ""), 0
				if lines := linesOf(text); lines != nil {
					r.Header[of.key] = lines
				}
				if want == differ {
					status = 400
				}
				requireValue(t, of.v, of.source, r, want, status, "has two different values")
			}
		}
	}
}

const (
	urlencoded = "application/x-www-form-urlencoded"
	multiparts = "multipart/form-data; boundary=b"
)

// part is a part of a multipart body, end its end.
func part(disposition, text string) string {
	return "--b\r\nContent-Disposition: form-data; " + disposition + "\r\n\r\n" + text + "\r\n"
}

const end = "--b--\r\n"

func TestForm(t *testing.T) {
	_, err := httplimit.Form("email")(newRequest("POST", "", urlencoded, "%"))
	require.ErrorContains(t, errors.Unwrap(err), "invalid URL escape")
	email := func(text string) string { return part(`name="email"`, text) }
	for _, c := range []struct {
		name                             string
		method, query, contentType, body string
		want                             string
		status                           int
		reason                           string
	}{
		{"nothing", "GET", "", "", "", "", 0, ""},
		{"query", "GET", "email=a", "", "", "a", 0, ""},
		{"query, escaped", "GET", "e%6dail=%61+b", "", "", "a b", 0, ""},
		{"case counts", "GET", "Email=a", "", "", "", 0, ""},
		{"empty", "GET", "email=", "", "", "", 0, ""},
		{"query, twice the same", "GET", "email=a&email=a", "", "", "a", 0, ""},
		{"query, two different", "GET", "email=a&email=" + secret, "", "", "", 400, "has two different values"},
		{"query, empty and something", "GET", "email=&email=" + secret, "", "", "", 400, "has two different values"},
		{"query of a JSON request", "POST", "email=a", "application/json", `{"email":"b"}`, "a", 0, ""},

		{"body", "POST", "", urlencoded, "email=a", "a", 0, ""},
		{"body, with a charset", "PUT", "", urlencoded + "; charset=UTF-8", "email=a", "a", 0, ""},
		{"body, the type's case", "PATCH", "", "Application/X-WWW-Form-URLencoded", "email=a", "a", 0, ""},
		{"body and query agree", "POST", "email=a", urlencoded, "email=a", "a", 0, ""},
		{"body and query differ", "POST", "email=" + secret, urlencoded, "email=a", "", 400, "has two different values"},
		{"the body of a GET is none", "GET", "email=a", urlencoded, "email=b", "a", 0, ""},
		{"the body of a DELETE is none", "DELETE", "", urlencoded, "email=b", "", 0, ""},
		{"the body of an unknown type is none", "POST", "email=a", "", "email=b", "a", 0, ""},
		{"body, malformed escape", "POST", "", urlencoded, "email=a&x=%" + secret, "", 400, "the form could not be read"},
		{"query, malformed escape", "POST", "x=%" + secret, urlencoded, "email=a", "", 400, "the form could not be read"},
		{"query, semicolon", "GET", "email=a;email=" + secret, "", "", "", 400, "the form could not be read"},
		{"malformed type", "POST", "", urlencoded + "; charset", "email=" + secret, "", 400, "the form could not be read"},

		{"multipart", "POST", "", multiparts, email("a") + end, "a", 0, ""},
		{"multipart of a GET counts", "GET", "", multiparts, email("a") + end, "a", 0, ""},
		{"multipart, twice the same", "POST", "", multiparts, email("a") + email("a") + end, "a", 0, ""},
		{"multipart, two different", "POST", "", multiparts, email("a") + email(secret) + end, "", 400, "has two different values"},
		{"multipart and query differ", "POST", "email=a", multiparts, email(secret) + end, "", 400, "has two different values"},
		{"multipart, a file beside it", "POST", "", multiparts, email("a") + part(`name="x"; filename="x"`, "y") + end, "a", 0, ""},
		{"multipart, it is a file", "POST", "", multiparts, part(`name="email"; filename="x"`, secret) + end, "", 400, "must be text, not a file"},
		{"multipart, a file too", "POST", "", multiparts, email("a") + part(`name="email"; filename="x"`, secret) + end, "", 400, "must be text, not a file"},
		{"multipart, no boundary", "POST", "", "multipart/form-data", email(secret) + end, "", 400, "the form could not be read"},
		{"multipart, cut off", "POST", "", multiparts, email(secret), "", 400, "the form could not be read"},
		{"multipart, malformed query", "POST", "%", multiparts, email(secret) + end, "", 400, "the form could not be read"},
		{"multipart, too many parts for net/http", "POST", "", multiparts, strings.Repeat(email("a"), 1001) + end, "", 400, "the form could not be read"},
		{"multipart, but no body", "POST", "email=a", multiparts, "", "a", 0, ""},
		{"multipart/mixed is no form", "POST", "email=a", "multipart/mixed; boundary=b", email("b") + end, "a", 0, ""},

		{"as long as may be", "POST", "", urlencoded, "email=a&x=" + strings.Repeat("x", httplimit.DefaultMaxBody-10), "a", 0, ""},
		{"a byte longer", "POST", "", urlencoded, "email=a&x=" + strings.Repeat("x", httplimit.DefaultMaxBody-9), "", 413, "the request is larger than 1048576 bytes"},
		{"multipart, too long", "POST", "", multiparts, email(strings.Repeat(secret, 1<<18)) + end, "", 413, "the request is larger than 1048576 bytes"},
		{"too long, but no form", "POST", "email=a", "text/plain", strings.Repeat("x", 2<<20), "a", 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRequest(c.method, c.query, c.contentType, c.body)
			requireValue(t, httplimit.Form("email"), `form field "email"`, r, c.want, c.status, c.reason)
			require.Nil(t, r.Form, "the handler is to parse it")
			require.Nil(t, r.MultipartForm)
			require.Equal(t, c.body, string(try.To(io.ReadAll(r.Body))(t)))
			if c.status == 0 {
				requireValue(t, httplimit.Form("email"), `form field "email"`, newRequest(c.method, c.query, c.contentType, c.body), newRequest(c.method, c.query, c.contentType, c.body).FormValue("email"), 0, "")
			}
		})
	}
}

// A form that an outer handler has parsed is the form, and stays unchanged.
func TestFormParsedBefore(t *testing.T) {
	body := part(`name="email"`, "a") + end
	t.Run("whole", func(t *testing.T) {
		r := newRequest("POST", "x=y", multiparts, body)
		require.Equal(t, "a", r.FormValue("email"))
		form, parts := r.Form, r.MultipartForm
		requireValue(t, httplimit.Form("email"), `form field "email"`, r, "a", 0, "")
		form["email"] = append(form["email"], "changed")
		requireValue(t, httplimit.Form("email"), `form field "email"`, r, "", 400, "has two different values")
		require.Same(t, parts, r.MultipartForm)
	})
	t.Run("but not the multipart body, which the handler may parse yet", func(t *testing.T) {
		for query, want := range map[string]int{"email=a&email=a": 0, "email=b": 400} {
			r := newRequest("POST", query, multiparts, body)
			require.NoError(t, r.ParseForm())
			before := len(r.Form["email"])
			r.Form["email"] = slices.Grow(r.Form["email"], 8)
			requireValue(t, httplimit.Form("email"), `form field "email"`, r, "a", want, "has two different values")
			require.Len(t, r.Form["email"], before)
			require.Empty(t, r.Form["email"][:8][before], "nor behind its end")
			require.Empty(t, r.PostForm)
			require.Nil(t, r.MultipartForm)
			require.NoError(t, r.ParseMultipartForm(1<<20))
			require.Len(t, r.Form["email"], before+1)
		}
	})
	t.Run("as a stream of parts", func(t *testing.T) {
		r := newRequest("POST", "", multiparts, body)
		try.To(r.MultipartReader())(t)
		requireValue(t, httplimit.Form("email"), `form field "email"`, r, "", 400, "the form could not be read")
	})
	t.Run("as a file", func(t *testing.T) {
		r := newRequest("POST", "", multiparts, part(`name="email"; filename="x"`, "a")+end)
		require.Empty(t, r.FormValue("email"))
		requireValue(t, httplimit.Form("email"), `form field "email"`, r, "", 400, "must be text, not a file")
	})
}

func TestJSON(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	const (
		malformed = "the request is not valid JSON"
		twice     = "has a key twice on its path"
		object    = "is not in an object"
		scalar    = "must be text or a whole number"
		large     = "the request is larger than 1048576 bytes"
	)
	for _, row := range []struct {
		path, want, reason string
		bodies             []string
	}{
		{"email", "", "", []string{``, `{"mail":"a"}`, `{}`, `{"email":null}`, `{"email":""}`, `null`}},
		{"email", "a@b", "", []string{`{"email":"a@b"}`}},
		{"email", "a", "", []string{
			" \t\r\n{ \"x\" : [ ] , \"email\" : \"a\" } \n", `{"\u0065mail":"a"}`, `{"eMAIL":"a"}`,
			// What looks like the key in strings, deeper, and escaped.
			`{"a":"\"email\":\"x\"","b":{"email":"x"},"c":["email","\\"],"email":"a"}`,
			`{"x":{"email":1},"x":{"email":2,"email":3},"email":"a"}`,
			`{"x":` + deep(9999) + `,"email":"a"}`, // as deep as encoding/json goes
			`{"email":"a"}` + strings.Repeat(" ", httplimit.DefaultMaxBody-13)}},
		{"email", " A é\n", "", []string{`{"email":" A \u00e9\n"}`}},
		{"email", "\ufffd", "", []string{"{\"email\":\"\xff\"}", `{"email":"\ud800"}`}},
		{"sid", "a", "", []string{`{"ſID":"a"}`}},
		{"user.email", "a", "", []string{`{"x":1,"user":{"id":2,"email":"a"}}`}},
		{"user.email", "", "", []string{`{"user":{}}`, `{"user":null}`, `{"email":"a"}`}},
		{"", "a", "", []string{` "a" `}},
		{"", "7", "", []string{`7`}},
		{"email", "7", "", []string{`{"email":7}`}},
		{"email", "0", "", []string{`{"email":0}`, `{"email":-0}`}},
		{"email", "-7", "", []string{`{"email":-7}`}},
		{"email", "123456789012345678901234567890", "", []string{`{"email":123456789012345678901234567890}`}},

		{"email", "", object, []string{`["` + secret + `"]`, `"` + secret + `"`}},
		{"user.email", "", object, []string{`{"user":"` + secret + `"}`, `{"user":[{"email":"` + secret + `"}]}`}},
		{"email", "", scalar, []string{`{"email":7.0}`, `{"email":7e0}`, `{"email":7E0}`, `{"email":true}`,
			`{"email":false}`, `{"email":{"x":"` + secret + `"}}`, `{"email":["` + secret + `"]}`}},
		{"email", "", twice, []string{`{"email":"a","email":"` + secret + `"}`, `{"email":"a","email":"a"}`,
			`{"email":"a","Email":"` + secret + `"}`, `{"email":"a","emai\u006c":"` + secret + `"}`,
			`{"email":null,"email":"` + secret + `"}`}},
		{"sid", "", twice, []string{`{"sid":"a","\u017fid":"` + secret + `"}`}},
		{"user.email", "", twice, []string{`{"user":{"email":"a"},"USER":{}}`}},
		{"email", "", malformed, []string{` `, `{"email":"` + secret + `"`, `{"email":"a"} {"email":"` + secret + `"}`,
			`{"email":"a",}`, "\ufeff" + `{"email":"a"}`, "{\x00\"\x00e\x00", `{"email":"a"/*` + secret + `*/}`,
			`{"email":07}`, `{"email":NaN}`, "{\"email\":\"a\n\"}", `email=` + secret,
			`{"x":` + deep(10000) + `,"email":"a"}`, deep(httplimit.DefaultMaxBody / 2)}},
		{"email", "", large, []string{`{"email":"a"}` + strings.Repeat(" ", httplimit.DefaultMaxBody-12)}},
	} {
		var path []string
		if row.path != "" {
			path = strings.Split(row.path, ".")
		}
		status := map[string]int{"": 0, large: 413, malformed: 400, twice: 400, object: 400, scalar: 400}[row.reason]
		for _, text := range row.bodies {
			r := newRequest("POST", "", "text/plain", text)
			requireValue(t, httplimit.JSON(path...), fmt.Sprintf("JSON field %q", row.path), r, row.want, status, row.reason)
			require.Equal(t, text, string(try.To(io.ReadAll(r.Body))(t)))
		}
	}
}

// A body that a handler must decode first is refused: compressed bytes have no
// field "email", but their content may have the field.
func TestEncodedBody(t *testing.T) {
	for _, c := range []struct {
		lines  []string
		status int
	}{
		{[]string{"gzip"}, 415},
		{[]string{"identity", "br"}, 415},
		{[]string{secret}, 415},
		{[]string{"Identity"}, 0},
		{[]string{""}, 0},
	} {
		r := newRequest("POST", "", urlencoded, "email=a")
		r.Header["Content-Encoding"] = c.lines
		requireValue(t, httplimit.Form("email"), `form field "email"`, r, "a", c.status, "the request must not be compressed")
		r = newRequest("POST", "", "", `{"email":"a"}`)
		r.Header["Content-Encoding"] = c.lines
		requireValue(t, httplimit.JSON("email"), `JSON field "email"`, r, "a", c.status, "the request must not be compressed")
		r = newRequest("POST", "email=a", "text/plain", "")
		r.Header["Content-Encoding"] = c.lines
		requireValue(t, httplimit.Form("email"), `form field "email"`, r, "a", 0, "the body is not read")
	}
}

// tokens finds path by the tokens of a json.Decoder: what JSON does, with nothing of its
// own but the rules.
func tokens(data []byte, path []string) (text string, ok bool) {
	if !json.Valid(data) {
		return "", len(data) == 0
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	token, _ := dec.Token()
	if len(path) > 0 {
		if token != json.Delim('{') {
			return "", token == nil
		}
		var found []json.RawMessage
		for dec.More() {
			key, _ := dec.Token()
			var value json.RawMessage
			if dec.Decode(&value) != nil {
				return "", false
			}
			if strings.EqualFold(key.(string), path[0]) {
				found = append(found, value)
			}
		}
		if len(found) == 1 {
			return tokens(found[0], path[1:])
		}
		return "", len(found) == 0
	}
	switch v := token.(type) {
	case nil:
		return "", true
	case string:
		return v, true
	case json.Number:
		if v == "-0" {
			v = "0"
		}
		return v.String(), !strings.ContainsAny(v.String(), ".eE")
	}
	return "", false
}

// requireAgreement holds JSON fields of body to what a handler's struct holds,
// if the body can be decoded into one, and to tokens. It returns how many texts
// and errors there were.
func requireAgreement(t *testing.T, body []byte) (found, refused int) {
	var handler struct {
		Email string `json:"email"`
		K     string `json:"k"`
		User  struct {
			Email string `json:"email"`
		} `json:"user"`
	}
	decoded := json.Unmarshal(body, &handler) == nil
	for path, want := range map[string]string{"email": handler.Email, "user.email": handler.User.Email, "k": handler.K} {
		path := strings.Split(path, ".")
		got, err := httplimit.JSON(path...)(newRequest("POST", "", "", string(body)))
		if err == nil && decoded {
			require.Equal(t, want, got, "%q", body)
		}
		text, ok := tokens(body, path)
		require.Equal(t, ok, err == nil, "%q: tokens: %q, %v; here %q, %v", body, text, ok, got, err)
		if ok {
			require.Equal(t, text, got, "%q", body)
		}
		if err != nil {
			refused++
		} else if got != "" {
			found++
		}
	}
	return found, refused
}

// JSON finds the text that a handler's struct gets, if the body can be decoded
// into a struct; and the tokens give the same text.
func FuzzJSONField(f *testing.F) {
	for _, s := range []string{
		``, `null`, `{}`, `[]`, `"email"`, ` {"email" : "a"} `, `{"email":"a","EMAIL":"b"}`, `{"user":{"email":"a"},"email":null}`,
		`{"\u0065mail":"\ud83d\ude00"}`, "{\"email\":\"\xff\xfe\"}", `{"user":{"email":"a"},"user":null}`, `{"user":{"email":7}}`, `{"email":-0}`,
		`{"x":"\\","y":"\"","email":"{\"email\":1}"}`, `{"email":1e2}`, `{"email":[1,{"a":"]"}]}`, `{"email":"a"}{}`, "\ufeff{}", `{"ema\u0131l":"a"}`,
		`[1,]`, `{"a":1,}`, `[-01.5e+7,0.1E-2,-,1.]`, `"\u12g4"`, `[tru]`, `{"a":[{"b":[]},{}]}`,
		`{"":{"email":"a"},"k":"\u212a","\u212a":"x"}`, `{"user":[],"USEr":{"eMail":"b"}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		requireAgreement(t, body)
	})
}

// randomJSON is an object full of nearly equal keys.
func randomJSON(r *rand.Rand, depth int) string {
	pick := func(all ...string) string { return all[r.IntN(len(all))] }
	space := func() string { return pick("", "", " ", "\n\t") }
	value := pick(`"a"`, `"b"`, `"c"`, `"\"b\\"`, `""`, `null`, `7`, `-0`, `-12`, `1.5`, `1e3`, `true`, `{}`, `[]`, `[{"email":"x"},"]"]`, `"\u0041\ud83d\ude00"`, "\"\xff\"")
	if depth == 0 || r.IntN(3) == 0 {
		return value
	}
	var members []string
	for range 1 + r.IntN(3) {
		key := pick(`email`, `email`, `user`, `user`, `EMAIL`, `User`, `\u0065mail`, `u\u017fer`, `uſer`, `k`, `\u212a`, `x`, ``, `email\u0000`, `\"}`)
		members = append(members, space()+`"`+key+`"`+space()+`:`+space()+randomJSON(r, depth-1)+space())
	}
	return space() + "{" + strings.Join(members, ",") + space() + "}" + space()
}

func TestJSONAgainstTheDecoder(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r, found, refused := rand.New(rand.NewPCG(seed, 0)), 0, 0
	for range 3000 {
		body := []byte(randomJSON(r, 4))
		n, m := requireAgreement(t, body)
		found, refused = found+n, refused+m
		const signs = "{}[]:,\"\\ \n\x00-+.019eEtnu"
		body[r.IntN(len(body))] = signs[r.IntN(len(signs))] // hardly JSON any more
		requireAgreement(t, body)
	}
	require.Greater(t, found, 80)
	require.Greater(t, refused, 80)
}

// Form finds the text that FormValue of the untouched request returns. Form
// finds no text only where net/http finds an error, two texts, or a file.
func FuzzForm(f *testing.F) {
	for _, s := range [][4]string{
		{"GET", "email=a", "", ""},
		{"POST", "email=a", urlencoded, "email=b"},
		{"POST", "", urlencoded + "; charset=utf-8", "x=1&email=a%20b&email=a+b"},
		{"PUT", "a;b", urlencoded, "email=%zz"},
		{"DELETE", "email", "application/json", `{"email":1}`},
		{"POST", "email=a", multiparts, part(`name="email"`, "b") + end},
		{"GET", "", multiparts, part(`name="email"`, "b") + part(`name="file"; filename="x"`, "c") + end},
		{"PATCH", "", multiparts, part(`name="email"; filename="x"`, "b") + end},
		{"POST", "", `multipart/form-data; boundary="b"`, part(`name*=utf-8''email`, "b") + end},
		{"POST", "email=a", "multipart/form-data", "--\r\n"},
	} {
		f.Add(s[0], s[1], s[2], s[3])
	}
	f.Fuzz(func(t *testing.T, method, query, contentType, body string) {
		r := newRequest(method, query, contentType, body)
		got, err := httplimit.Form("email")(r)
		untouched := newRequest(method, query, contentType, body)
		want := untouched.FormValue("email")
		require.Equal(t, want, r.FormValue("email"), "the handler sees what it would have seen")
		if err == nil {
			require.Equal(t, want, got)
			return
		}
		untouched = newRequest(method, query, contentType, body)
		parseErr := untouched.ParseForm()
		if e := untouched.ParseMultipartForm(32 << 20); parseErr == nil && e != http.ErrNotMultipart {
			parseErr = e
		}
		if parseErr != nil || untouched.MultipartForm != nil && len(untouched.MultipartForm.File["email"]) > 0 {
			return
		}
		differ := false
		for _, text := range untouched.Form["email"] {
			differ = differ || text != want
		}
		require.True(t, differ, "%v, without a reason", err)
	})
}

// The short way through a cookie line says what net/http says.
func FuzzCookie(f *testing.F) {
	for _, line := range []string{"sid=1", "a=0; sid=1;b", "sid=1; sid=2", `sid="1"; sid=1`, " sid = 1 ", "sid=1,2; sid=\x7f", "sid", ";;=;sid==", "sid=\u00e9"} {
		f.Add(line, "")
		f.Add(line, "sid=1")
	}
	f.Fuzz(func(t *testing.T, line, second string) {
		r := newRequest("GET", "", "", "")
		r.Header["Cookie"] = []string{line}
		if second != "" {
			r.Header["Cookie"] = append(r.Header["Cookie"], second)
		}
		got, err := httplimit.Cookie("sid")(r)
		want, differ := "", false
		for i, c := range r.CookiesNamed("sid") {
			if i == 0 {
				want = c.Value
			}
			differ = differ || c.Value != want
		}
		require.Equal(t, differ, err != nil)
		if !differ {
			require.Equal(t, want, got)
		}
	})
}

// A body of the largest size, as expensive as a sender can make the body,
// beside the tokens of a json.Decoder and a handler's own cost.
func BenchmarkJSONField(b *testing.B) {
	fill := func(format string, tail string) []byte {
		body := []byte("{")
		for i := 0; len(body) < httplimit.DefaultMaxBody-100; i++ {
			body = fmt.Appendf(body, format, i)
		}
		return append(body, tail...)
	}
	for name, body := range map[string][]byte{
		"small":        []byte(`{"name":"Ann","email":"ann@example.org","terms":true}`),
		"many keys":    fill(`"%d":1,`, `"email":"ann@example.org"}`),
		"escaped keys": fill(`"\u0065%d":1,`, `"email":"ann@example.org"}`),
		"nested":       []byte(`{"x":[` + strings.Repeat(`[[[]]],`, httplimit.DefaultMaxBody/8) + `1],"email":"ann@example.org"}`),
	} {
		for reader, read := range map[string]func() (string, bool){
			"JSON": func() (string, bool) {
				s, err := httplimit.JSON("email")(newRequest("POST", "", "", string(body)))
				return s, err == nil
			},
			"tokens": func() (string, bool) { return tokens(body, []string{"email"}) },
			"handler": func() (string, bool) {
				var v struct{ Email string }
				err := json.NewDecoder(newRequest("POST", "", "", string(body)).Body).Decode(&v)
				return v.Email, err == nil
			},
		} {
			b.Run(name+"/"+reader, func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(body)))
				for b.Loop() {
					if s, ok := read(); !ok || s != "ann@example.org" {
						b.Fatal(s, ok)
					}
				}
			})
		}
	}
}

func ExampleValue() {
	r, _ := http.NewRequest("POST", "/signup?lang=en", strings.NewReader(`{"user": {"email": "ann@example.org", "id": 7}}`))
	r.SetPathValue("tenant", "acme")
	tenant := func(r *http.Request) (string, error) { return r.PathValue("tenant"), nil }

	for _, v := range []httplimit.Value{httplimit.JSON("user", "email"), httplimit.JSON("user", "id"), httplimit.Form("lang"), tenant} {
		fmt.Println(v(r))
	}
	// Output:
	// ann@example.org <nil>
	// 7 <nil>
	// en <nil>
	// acme <nil>
}

// A Value can be what the router has found, where the middleware stands inside.
func TestPathValueIsAFeature(t *testing.T) {
	limit := newLimit(t, httplimit.Config{
		Limiter:  newLimiter(t, newClock(), by("tenant", "1/d")),
		Features: []httplimit.Source{httplimit.NewSource("tenant", func(r *http.Request) (string, error) { return r.PathValue("id"), nil })},
	})
	m := http.NewServeMux()
	m.Handle("GET /tenants/{id}", limit(welcome))
	s := newSite(t, m)
	require.Equal(t, 200, s.do("GET", "/tenants/7", "").status)
	require.Equal(t, 429, s.do("GET", "/tenants/7", "").status)
	require.Equal(t, 200, s.do("GET", "/tenants/8", "").status)
}
