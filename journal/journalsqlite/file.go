package journalsqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// ClaimOptions adjust Claim. The zero value is the default.
type ClaimOptions struct {
	// TakeOver goes on where another process holds the file's lock: the next opening of
	// the journal then fences that process, and burns what it had open.
	TakeOver bool
}

// File is a journal's file, checked, and locked by this process.
type File struct {
	path string
	mu   sync.Mutex
	lock *os.File // nil: taken over from a process that may still hold it
	gone bool     // released
}

// What lies beside the file.
const (
	lockSuffix   = ".lock"        // locked for as long as a process owns the journal
	markSuffix   = ".quarantined" // a damaged journal was set aside: nothing may take its place
	asideSuffix  = ".damaged-"    // what was set aside, with its time
	privateMode  = 0o600
	exposedModes = 0o077
)

// beside are the files that SQLite keeps beside its own.
var beside = []string{"", "-wal", "-shm", "-journal"}

// Claim checks that the path names a private file of this user, creates it where there is
// none, and locks it. The path is absolute and has no symbolic link as its last part; the
// file is regular, has one name, and is for its owner only; its folder is not for everybody
// to write into. The lock ends with the process.
//
// Errors: *PathError, ErrLocked, *QuarantinedError.
func Claim(path string, o *ClaimOptions) (*File, error) {
	if err := checkPath(path); err != nil {
		return nil, err
	}
	if err := checkFolder(path); err != nil {
		return nil, err
	}
	f := &File{path: path}
	if err := f.acquire(); err != nil && (o == nil || !o.TakeOver || !errors.Is(err, ErrLocked)) {
		return nil, err
	}
	if err := f.prepare(); err != nil {
		return nil, errors.Join(err, f.Release())
	}
	return f, nil
}

// Path is the file's path.
func (f *File) Path() string { return f.path }

// DSN is the data source name to open the file with by modernc.org/sqlite, with the
// settings that a journal needs.
func (f *File) DSN() string {
	return "file:" + f.path + "?_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=foreign_keys(1)&_pragma=fullfsync(1)"
}

// Release gives up the file. A Store does so when it is closed.
func (f *File) Release() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gone = true
	if f.lock == nil {
		return nil
	}
	err := f.lock.Close()
	f.lock = nil
	return plain(err)
}

// checkPath refuses what SQLite would not take for a plain path.
func checkPath(path string) error {
	why := ""
	switch {
	case !filepath.IsAbs(path) || filepath.Clean(path) != path:
		why = "is not absolute and clean"
	case strings.ContainsAny(path, "?#%\x00"):
		why = "has characters that mean something in a URI"
	}
	for _, suffix := range [...]string{lockSuffix, markSuffix, "-wal", "-shm", "-journal"} {
		if strings.HasSuffix(path, suffix) {
			why = "ends like a file that lies beside a journal"
		}
	}
	if why != "" {
		return &PathError{"the path", why, "give the plain path of a file on a local disk"}
	}
	return nil
}

func checkFolder(path string) error {
	folder, err := os.Stat(filepath.Dir(path))
	switch {
	case err != nil || !folder.IsDir():
		return &PathError{"its folder", "is not there", "make it, for this user only"}
	case exposed(folder, 0o002):
		return &PathError{"its folder", "can be written by everybody", "keep the journal in a folder of its own"}
	}
	return nil
}

// prepare checks the file, or makes it, while the lock is held.
func (f *File) prepare() error {
	if _, err := os.Lstat(f.path + markSuffix); !errors.Is(err, fs.ErrNotExist) {
		as, _ := os.ReadFile(f.path + markSuffix)
		name, _, _ := strings.Cut(string(as), "\n")
		return &QuarantinedError{As: name}
	}
	for _, suffix := range beside {
		info, err := os.Lstat(f.path + suffix)
		switch {
		case errors.Is(err, fs.ErrNotExist) && suffix == "":
			if err := f.lonely(); err != nil {
				return err
			}
			if err := create(f.path); err != nil {
				return err
			}
		case err == nil && suffix == "" && info.Size() == 0:
			if err := f.lonely(); err != nil {
				return err
			}
			if err := private(info); err != nil {
				return err
			}
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return &PathError{"the file", "cannot be looked at", "see who owns its folder"}
		default:
			if err := private(info); err != nil {
				return err
			}
		}
	}
	return nil
}

// lonely refuses to begin a journal where there was one, or where only its log is left,
// which SQLite would delete.
func (f *File) lonely() error {
	if known, err := os.ReadFile(f.path + lockSuffix); err == nil && len(known) > 0 {
		return &PathError{"the file", "is gone or empty, and there was a journal in it", "look for it, or see StartAnew"}
	}
	for _, suffix := range beside[1:] {
		if _, err := os.Lstat(f.path + suffix); err == nil {
			return &PathError{"the file", "is gone and what SQLite keeps beside it is not", "look for it, or see StartAnew"}
		}
	}
	return nil
}

func private(info fs.FileInfo) error {
	switch {
	case !info.Mode().IsRegular():
		return &PathError{"the file", "is not a regular file", "give the path of a file, not of a link"}
	case exposed(info, exposedModes):
		return &PathError{"the file", "can be used by others than its owner", "run chmod 600 on it, and look at who changed it"}
	case !owned(info):
		return &PathError{"the file", "belongs to another user or has a second name", "look at who made it"}
	}
	return nil
}

// create makes an empty file that is there after a crash of the machine.
func create(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, privateMode)
	if err != nil {
		return &PathError{"the file", "cannot be made", "see who owns its folder"}
	}
	err = errors.Join(file.Sync(), file.Close(), syncFolder(path))
	return plain(err)
}

func syncFolder(path string) error {
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return plain(err)
	}
	err = folder.Sync()
	return plain(errors.Join(err, folder.Close()))
}

// plain keeps paths out of errors.
func plain(err error) error {
	if err == nil {
		return nil
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return &PathError{"the file", "cannot be used (" + err.Error() + ")", "look at the disk and at the folder"}
}

// acquire takes the lock. It is in a file of its own: whoever opens and closes an SQLite
// file by hand drops the locks that SQLite holds on it in this process.
func (f *File) acquire() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lock != nil || f.gone {
		return nil
	}
	if info, err := os.Lstat(f.path + lockSuffix); err == nil {
		if err := private(info); err != nil {
			return err
		}
	}
	file, err := os.OpenFile(f.path+lockSuffix, os.O_CREATE|os.O_RDWR, privateMode)
	if err != nil {
		return plain(err)
	}
	if err := lockFile(file); err != nil {
		return errors.Join(err, plain(file.Close()))
	}
	f.lock = file
	return nil
}

// remember notes that there is a journal, so that one that is lost is missed.
func (f *File) remember() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lock == nil {
		return nil
	}
	if info, err := f.lock.Stat(); err != nil || info.Size() > 0 {
		return plain(err)
	}
	_, err := f.lock.WriteString("This lock belongs to the journal beside it. Do not delete it.\n")
	return plain(errors.Join(err, f.lock.Sync(), syncFolder(f.path)))
}

// lockLate takes the lock of a process that was fenced and has ended since.
func (f *File) lockLate() {
	f.mu.Lock()
	held := f.lock != nil || f.gone
	f.mu.Unlock()
	if !held {
		_ = f.acquire()
	}
}

// quarantine sets a damaged journal aside. The mark comes first: from then on nothing
// takes its place, whatever happens in between.
func (f *File) quarantine() error {
	as := f.path + asideSuffix + time.Now().UTC().Format("20060102T150405.000000")
	mark := fmt.Sprintf("%s\nThe journal was found damaged and is kept under this name. What it had open may have been spent.\n", as)
	if err := setAside(f.path, as, mark); err != nil {
		return err
	}
	return &QuarantinedError{As: as}
}

func setAside(path, as, mark string) error {
	file, err := os.OpenFile(path+markSuffix, os.O_CREATE|os.O_EXCL|os.O_WRONLY, privateMode)
	if err != nil {
		return plain(err)
	}
	_, err = file.WriteString(mark)
	if err := plain(errors.Join(err, file.Sync(), file.Close(), syncFolder(path))); err != nil {
		return err
	}
	for i := len(beside) - 1; i >= 0; i-- { // the file itself goes last
		if err := os.Rename(path+beside[i], as+beside[i]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return plain(err)
		}
	}
	return syncFolder(path)
}

// StartAnew lets a new journal take the place of the one at path, on an operator's word:
// whatever stands there is set aside, and never deleted. The authority will have heard a
// higher number of this node's journal and refuse the new one until the node is readmitted.
//
// Errors: *PathError, ErrLocked.
func StartAnew(path, actor, reason string) error {
	if err := checkPath(path); err != nil {
		return err
	}
	if actor == "" || reason == "" {
		return &PathError{"the step", "names no actor or no reason", "say who decided it and why"}
	}
	f := &File{path: path}
	if err := f.acquire(); err != nil {
		return err
	}
	defer f.Release()
	as := path + asideSuffix + time.Now().UTC().Format("20060102T150405.000000")
	note := fmt.Sprintf("%s\nStarted anew by %q: %q\n", as, actor, reason)
	if _, err := os.Lstat(path + markSuffix); errors.Is(err, fs.ErrNotExist) {
		if err := setAside(path, as, note); err != nil {
			return err
		}
	} else if file, err := os.OpenFile(path+markSuffix, os.O_APPEND|os.O_WRONLY, privateMode); err != nil {
		return plain(err)
	} else {
		_, err = file.WriteString(note)
		if err := plain(errors.Join(err, file.Sync(), file.Close())); err != nil {
			return err
		}
		for _, suffix := range beside { // left behind by a death in the middle
			if err := os.Rename(path+suffix, as+suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return plain(err)
			}
		}
	}
	if err := f.lock.Truncate(0); err != nil {
		return plain(err)
	}
	if err := os.Rename(path+markSuffix, as+markSuffix); err != nil {
		return plain(err)
	}
	return syncFolder(path)
}
