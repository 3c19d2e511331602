package httplimit

import (
	"errors"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/url"
)

// Form is a form field, as [http.Request.FormValue] reads it, by the same rules
// of method and Content-Type: from the query, and from an urlencoded or
// multipart body. A form that an outer handler has parsed is used as parsed.
//
// An error is a field with two different values, in query and body together,
// since a handler may read either; a field that comes as a file; and a query or
// body with any malformed part, such as a semicolon between fields, which
// FormValue would skip. An urlencoded body above the 10 MB that net/http reads
// is too large, whatever the bound.
func Form(field string) Value {
	source := fmt.Sprintf("form field %q", field)
	return named(field != "", source, inBody(source, func(q *request) (string, error) {
		form, files, err := q.parseForm()
		if err != nil {
			return "", err
		}
		if len(files[field]) > 0 {
			return "", badRequest(source, "must be text, not a file")
		}
		return same(form[field], source)
	}))
}

// Default bounds of a form in net/http.
const (
	formMemory = 32 << 20 // of FormValue: files beyond go to disk
	formBytes  = 10 << 20 // of an urlencoded body
)

// parseForm has net/http parse the form in a copy of the request, so that the
// handler's form is still to be parsed.
func (q *request) parseForm() (url.Values, map[string][]*multipart.FileHeader, error) {
	if q.parsed {
		return q.form, q.files, q.formErr
	}
	q.formErr = nil
	r := *q.in
	r.Form = url.Values(http.Header(r.Form).Clone()) // a parser may append to both
	r.PostForm = url.Values(http.Header(r.PostForm).Clone())
	body := &viewBody{q: q, plain: true}
	r.Body = body
	defer removeFiles(&r, q.in)
	defer func() { q.parsed = !errors.Is(q.formErr, errSealed) }()

	err := r.ParseForm()
	if err != nil && body.at > formBytes {
		err = tooLarge(formBytes, err)
	}
	// Also if an outer handler has parsed the rest: the handler may go on.
	e := r.ParseMultipartForm(formMemory)
	empty := q.known && len(q.data) == 0 // which to a multipart reader is malformed
	if err == nil && !empty && !errors.Is(e, http.ErrNotMultipart) {
		err = e
	}
	switch {
	case body.err != nil:
		q.formErr = body.err
	case err != nil && valueError(err) == nil:
		q.formErr = &ValueError{http.StatusBadRequest, wholeBody, "the form could not be read", err}
	case err != nil:
		q.formErr = err
	default:
		q.form = r.Form
		if r.MultipartForm != nil {
			q.files = r.MultipartForm.File
		}
	}
	return q.form, q.files, q.formErr
}
