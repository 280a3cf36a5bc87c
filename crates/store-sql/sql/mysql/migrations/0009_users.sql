-- Kind 8 is an end user of a tenant. Here a kind is any number already.
ALTER TABLE object COMMENT = 'kinds 0 to 8, 8 is user';
