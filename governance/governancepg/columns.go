package governancepg

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// The columns of several rows, as arrays that the driver encodes without boxing every
// element. They need a mode in which the server has described the parameters.
type (
	uuidColumn  []pgtype.UUID
	int64Column []int64
	int16Column []int16
	bytesColumn [][]byte
)

type (
	int64Element int64
	int16Element int16
	bytesElement []byte
)

func (v *int64Element) Int64Value() (pgtype.Int8, error) {
	return pgtype.Int8{Int64: int64(*v), Valid: true}, nil
}

func (v *int16Element) Int64Value() (pgtype.Int8, error) {
	return pgtype.Int8{Int64: int64(*v), Valid: true}, nil
}

func (v *bytesElement) BytesValue() ([]byte, error) { return *v, nil }

var (
	anyUUID  = &pgtype.UUID{}
	anyInt64 = new(int64Element)
	anyInt16 = new(int16Element)
	anyBytes = new(bytesElement)
)

// dimension is not nil for an empty column: an empty array is not NULL.
func dimension(n int) []pgtype.ArrayDimension {
	if n == 0 {
		return []pgtype.ArrayDimension{}
	}
	return []pgtype.ArrayDimension{{Length: int32(n), LowerBound: 1}}
}

func (c uuidColumn) Dimensions() []pgtype.ArrayDimension { return dimension(len(c)) }
func (c uuidColumn) Index(i int) any                     { return &c[i] }
func (c uuidColumn) IndexType() any                      { return anyUUID }

func (c int64Column) Dimensions() []pgtype.ArrayDimension { return dimension(len(c)) }
func (c int64Column) Index(i int) any                     { return (*int64Element)(&c[i]) }
func (c int64Column) IndexType() any                      { return anyInt64 }

func (c int16Column) Dimensions() []pgtype.ArrayDimension { return dimension(len(c)) }
func (c int16Column) Index(i int) any                     { return (*int16Element)(&c[i]) }
func (c int16Column) IndexType() any                      { return anyInt16 }

func (c bytesColumn) Dimensions() []pgtype.ArrayDimension { return dimension(len(c)) }
func (c bytesColumn) Index(i int) any                     { return (*bytesElement)(&c[i]) }
func (c bytesColumn) IndexType() any                      { return anyBytes }

// described reports whether the server describes parameters in the pool's mode.
func described(mode pgx.QueryExecMode) bool {
	return mode == pgx.QueryExecModeCacheStatement || mode == pgx.QueryExecModeCacheDescribe || mode == pgx.QueryExecModeDescribeExec
}

// queue adds a statement whose arguments are columns.
func (s *Store) queue(b *pgx.Batch, sql string, columns ...any) {
	if s.described {
		for i, c := range columns {
			switch c := c.(type) {
			case []pgtype.UUID:
				columns[i] = uuidColumn(c)
			case []int64:
				columns[i] = int64Column(c)
			case []int16:
				columns[i] = int16Column(c)
			case [][]byte:
				columns[i] = bytesColumn(c)
			}
		}
	}
	b.Queue(sql, columns...)
}
