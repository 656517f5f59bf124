package keysimport_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/tallystick-go/tallystick/governance/governancemem"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/keys/keysimport"
	"github.com/tallystick-go/tallystick/keys/keyssqlite"
)

func ExampleNewAPI() {
	ctx := context.Background()
	st, err := governancemem.New(&governancemem.Options{Format: keys.Format{Foreign: []string{"sk-"}}})
	if err != nil {
		log.Fatal(err)
	}
	tokens := strings.NewReader(`id,user_id,key,status,name,expired_time,remain_quota,unlimited_quota,model_limits_enabled,model_limits,allow_ips,group,deleted_at
7,1,abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKL,1,ci,-1,0,t,t,gpt-4o,,vip,
8,1,zyxwvutsrqponmlkjihgfedcba9876543210LKJIHGFEDCBA,2,old,-1,0,t,f,,,vip,
`)
	users := strings.NewReader("id,status,quota,group,deleted_at\n1,1,2500000,default,\n")
	plan, err := keysimport.NewAPI{Tokens: tokens, Users: users}.Read()
	if err != nil {
		log.Fatal(err)
	}
	if err := plan.Report.WriteTable(os.Stdout); err != nil {
		log.Fatal(err)
	}
	fmt.Println(plan.Import(ctx, st.Keys, nil) == keysimport.ErrWider)
	if err := plan.Import(ctx, st.Keys, &keysimport.Options{AllowWider: true}); err != nil {
		log.Fatal(err)
	}
	caller, err := st.Keys.Resolve(ctx, "sk-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKL")
	fmt.Println(caller, caller.Key.AllowedModels, *caller.Key.Limits.CostPerMonth, err)
	// Output:
	// new-api: 1 teams, 2 keys, 2 secrets, 0 declarations; 1 keys stay refused, 0 rows left out
	// TABLE   LINE  ID          COLUMN        EFFECT    WHY
	// tokens        newapi-vip  group         lost      the group's channels and price ratio are not carried
	// tokens  2     newapi-7    remain_quota  wider     is for good: what is left is carried, and comes back each month
	// tokens  3     newapi-8    status        narrower  is disabled: carried as revoked, which is final here
	// true
	// key newapi-7 of team newapi-vip [gpt-4o] $5.000000 <nil>
}

func ExampleCopy() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "tallystick")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	db, err := sql.Open("sqlite", filepath.Join(folder, "keys.db")+
		"?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)&_pragma=fullfsync(1)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	old, err := keyssqlite.New(db, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer old.Close()
	if err := old.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	if _, err := old.CreateTeam(ctx, keys.CreateTeam{ID: "research"}); err != nil {
		log.Fatal(err)
	}
	made, err := old.CreateKey(ctx, keys.CreateKey{ID: "one", TeamID: "research"})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := old.RevokeKey(ctx, keys.RevokeKey{ID: "one"}); err != nil {
		log.Fatal(err)
	}

	shared, err := governancemem.New(nil) // a *keyspg.Store, in earnest
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		done, err := keysimport.Copy(ctx, shared.Keys, old)
		fmt.Println("added", done.Added, err)
	}
	_, err = shared.Keys.Resolve(ctx, made.Token.Reveal())
	fmt.Println(err)
	// Output:
	// added 1 teams, 1 keys, 1 secrets, 0 declarations <nil>
	// added 0 teams, 0 keys, 0 secrets, 0 declarations <nil>
	// keys: revoked
}
