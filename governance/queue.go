package governance

// queue holds one subject's waiting tasks, oldest first.
type queue struct {
	subject     string
	first, last *waiter
	length      int
	prev, next  *queue // in the ring
}

func (q *queue) push(w *waiter) {
	w.queue, w.prev = q, q.last
	if q.last != nil {
		q.last.next = w
	} else {
		q.first = w
	}
	q.last = w
	q.length++
}

func (q *queue) remove(w *waiter) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		q.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		q.last = w.prev
	}
	w.queue, w.prev, w.next = nil, nil, nil
	q.length--
}

// ring is a round of queues; the one whose turn it is comes first.
type ring struct{ first, last *queue }

func (r *ring) front() *queue { return r.first }

func (r *ring) push(q *queue) {
	q.prev = r.last
	if r.last != nil {
		r.last.next = q
	} else {
		r.first = q
	}
	r.last = q
}

func (r *ring) remove(q *queue) {
	if q.prev != nil {
		q.prev.next = q.next
	} else {
		r.first = q.next
	}
	if q.next != nil {
		q.next.prev = q.prev
	} else {
		r.last = q.prev
	}
	q.prev, q.next = nil, nil
}
