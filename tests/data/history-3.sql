BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL,
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0003');
CREATE TABLE comparisons (
	result INTEGER NOT NULL,
	series INTEGER NOT NULL,
	arm TEXT NOT NULL,
	ratio FLOAT,
	low FLOAT,
	high FLOAT,
	verdict TEXT,
	counts BOOLEAN NOT NULL,
	PRIMARY KEY (result, series, arm),
	FOREIGN KEY(result) REFERENCES results ("key") ON DELETE CASCADE,
	FOREIGN KEY(series) REFERENCES series ("key")
);
INSERT INTO "comparisons" VALUES(1,1,'test',1.0,0.99,1.01,'same',0);
CREATE TABLE points (
	"key" INTEGER NOT NULL,
	series INTEGER NOT NULL,
	result INTEGER NOT NULL,
	arm TEXT NOT NULL,
	"commit" TEXT NOT NULL,
	release TEXT NOT NULL,
	subject TEXT NOT NULL,
	night INTEGER NOT NULL,
	started TEXT NOT NULL,
	seeds INTEGER NOT NULL,
	first3 FLOAT,
	first6 FLOAT,
	low FLOAT,
	high FLOAT,
	PRIMARY KEY ("key"),
	CONSTRAINT points_by_result UNIQUE (result, series, arm),
	FOREIGN KEY(series) REFERENCES series ("key"),
	FOREIGN KEY(result) REFERENCES results ("key") ON DELETE CASCADE
);
INSERT INTO "points" VALUES(1,1,1,'test','0000000000000000000000000000000000000001','6.2.0','mm: change',1,'2026-11-01T09:00:00+00:00',3,101.0,NULL,100.0,102.0);
CREATE TABLE results (
	"key" INTEGER NOT NULL,
	id TEXT NOT NULL,
	kind TEXT NOT NULL,
	started TEXT NOT NULL,
	mode TEXT NOT NULL,
	base TEXT NOT NULL,
	test TEXT NOT NULL,
	verdict TEXT NOT NULL,
	reason TEXT NOT NULL,
	fingerprint TEXT NOT NULL,
	"plan" TEXT NOT NULL,
	night INTEGER NOT NULL,
	stamp TEXT NOT NULL,
	PRIMARY KEY ("key"),
	UNIQUE (id)
);
INSERT INTO "results" VALUES(1,'20261101-090000-aaaa','ab','2026-11-01T09:00:00+00:00','exact','v6.1','v6.2','same','no case changed','f00d','plan',1,'1:2');
CREATE TABLE samples (
	point INTEGER NOT NULL,
	number INTEGER NOT NULL,
	value FLOAT,
	PRIMARY KEY (point, number),
	FOREIGN KEY(point) REFERENCES points ("key") ON DELETE CASCADE
)
 WITHOUT ROWID

;
INSERT INTO "samples" VALUES(1,0,100.0);
INSERT INTO "samples" VALUES(1,1,101.0);
INSERT INTO "samples" VALUES(1,2,102.0);
CREATE TABLE series (
	"key" INTEGER NOT NULL,
	tree TEXT NOT NULL,
	branch TEXT NOT NULL,
	workload TEXT NOT NULL,
	case_name TEXT NOT NULL,
	metric TEXT NOT NULL,
	unit TEXT NOT NULL,
	better TEXT NOT NULL,
	is_primary BOOLEAN NOT NULL,
	mode TEXT NOT NULL,
	setup TEXT NOT NULL,
	fingerprint TEXT NOT NULL,
	conditions TEXT NOT NULL,
	PRIMARY KEY ("key"),
	CONSTRAINT series_by_name UNIQUE (workload, case_name, metric, tree, branch, conditions)
);
INSERT INTO "series" VALUES(1,'linux','main','alloc-burst','large','cycles','cycles','lower',1,'exact','','f00d','c0de');
CREATE INDEX points_in_order ON points (series, night, started);
CREATE INDEX comparisons_in_series ON comparisons (series);
COMMIT;
